// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cluster of GADGET's experiments: servers divided at random among 2 to 5 racks, 1, 2, 4 or 8 GPUs each, links of 10 to 100 Gbit/s
// from server to rack and of 200 to 3,200 Gbit/s from rack to core, each direction alike. The paper calls it a fat-tree and says no more;
// we take the tree of servers, racks and one core (`docs/scheduler.md`).

#include "maypole/base/rng.h"
#include "maypole/model/cluster.h"

namespace maypole::sim {

struct PaperClusterOptions {
  int servers = 50;       // at least 5, one a rack
  int total_gpus = 0;     // scales the servers' GPUs to about this sum, at least 1 each (its figure 5); 0: as drawn
  double link_scale = 1;  // multiplies every link (its figure 6)
};

/// Rates are nominal: payload is 0.95 of them.
[[nodiscard]] model::Cluster paper_cluster(const PaperClusterOptions& options, base::Rng& rng);

}  // namespace maypole::sim
