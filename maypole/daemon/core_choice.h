// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which cores of this machine a worker runs on, where the servers of a cluster file divide them: in the file's order, the first server
// with two cores has the first two, the next one begins at the third.

#include "maypole/model/cluster.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace maypole::daemon {

/// The cores that this process may run on, ascending.
[[nodiscard]] std::vector<int> usable_cores();

/// By server id. Empty where the servers have more cores than there are, or one has a part of a core.
using ServerCores = std::map<std::string, std::vector<int>>;
[[nodiscard]] ServerCores divide_cores(const model::Cluster& cluster, const std::vector<int>& usable);
/// How many cores the servers have together.
[[nodiscard]] double declared_cores(const model::Cluster& cluster);

/// The lowest `wanted` ones of a server that are not `used`. Empty where that is no whole number, or there are not so many.
[[nodiscard]] std::vector<int> choose_cores(const std::vector<int>& of_server, const std::set<int>& used, double wanted);

}  // namespace maypole::daemon
