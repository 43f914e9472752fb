// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/daemon/supervisor.h"

#include <string>
#include <vector>

namespace maypole::daemon {

/// What is taken of the cluster. Cost: one look at every worker that runs.
struct ClusterLoad {
  std::vector<std::string> servers;  // [ServerId] {id, rack, closed, capacity, held, jobs}; closed: why nothing new starts there, or null
  std::vector<std::string> links;    // {id, from, to, bandwidth, reserved}; bandwidth null: no limit
};
[[nodiscard]] ClusterLoad cluster_load(const Supervisor& supervisor);

/// {policy, slot_s, refused, servers, switches: [{id, rack}], links}; `refused` is the last decision that the checker refused, or null.
[[nodiscard]] std::string cluster_json(const Supervisor& supervisor, double slot_s);

}  // namespace maypole::daemon
