// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/core_choice.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

namespace maypole::daemon {

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

double declared_cores(const model::Cluster& cluster) {
  const auto cpu = cluster.find_resource("cpu");
  double sum = 0;
  for (std::size_t i = 0; cpu && i < cluster.num_servers(); ++i) {
    sum += cluster.server(model::ServerId::from_index(i)).capacity[*cpu];
  }
  return sum;
}

ServerCores divide_cores(const model::Cluster& cluster, const std::vector<int>& usable) {
  const auto cpu = cluster.find_resource("cpu");
  ServerCores divided;
  auto next = usable.begin();
  for (std::size_t i = 0; cpu && i < cluster.num_servers(); ++i) {
    const model::Server& server = cluster.server(model::ServerId::from_index(i));
    const double cores = server.capacity[*cpu];
    if (cores != std::floor(cores) || cores > static_cast<double>(usable.end() - next)) {
      return {};
    }
    const auto end = next + static_cast<std::ptrdiff_t>(cores);
    divided[server.id].assign(next, end);
    next = end;
  }
  return divided;
}

std::vector<int> choose_cores(const std::vector<int>& of_server, const std::set<int>& used, double wanted) {
  std::vector<int> chosen;
  for (const int core : of_server) {
    if (!used.contains(core) && static_cast<double>(chosen.size()) < wanted) {
      chosen.push_back(core);
    }
  }
  return static_cast<double>(chosen.size()) == wanted ? chosen : std::vector<int>{};
}

}  // namespace maypole::daemon
