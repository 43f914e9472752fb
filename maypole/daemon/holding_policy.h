// SPDX-License-Identifier: Apache-2.0
#pragma once

// The daemon's rule around any policy: what runs keeps its ring, and the policy divides what is free among those that wait.
//
// The controller asks at every step of the daemon's clock, which is much shorter than a slot; the policy is asked as if a whole slot
// began, about a cluster of which the held rings have been taken away. Two things more are the same for every policy: a waiting job's
// weight doubles every `age_s`, and once it has doubled twice and the job still does not fit, nothing lighter starts before it: so nobody
// starves. And of the waiting jobs that would fit only the heaviest are offered (then the oldest), so that a decision over a queue of ten
// thousand takes no longer than one over a queue of a few hundred.

#include "maypole/sched/policy.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace maypole::daemon {

/// Rings that may not be changed; the daemon's core adds and removes them.
using HeldRings = std::map<model::JobId, model::Embedding>;
/// Servers on which nothing may start; what runs there keeps its ring.
using ClosedServers = std::set<model::ServerId>;

struct HoldingOptions {
  double slot_s = 60;  // that the policy plans for
  double age_s = 600;  // in which a waiting job's weight doubles; 0: never
  std::size_t most_candidates = 256;
};

/// `held` and `closed` outlive the policy.
[[nodiscard]] std::unique_ptr<sched::Policy> make_holding_policy(std::unique_ptr<sched::Policy> inner, const HeldRings* held,
                                                                 const ClosedServers* closed, const HoldingOptions& options);

/// The cluster with nothing on the closed servers.
[[nodiscard]] model::Cluster open_part(const model::Cluster& cluster, const ClosedServers& closed);

/// The cluster without what the rings take. A link that is full keeps one byte a second, which no job can live on: links with nothing
/// are not part of a cluster.
[[nodiscard]] model::Cluster without(const model::Cluster& cluster,
                                     const std::vector<std::pair<const model::Job*, const model::Embedding*>>& rings);

}  // namespace maypole::daemon
