// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/device_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace maypole::daemon {

Devices choose_devices(const model::Cluster& cluster, const model::Job& job, const std::vector<model::ServerId>& ring, std::set<int> used) {
  Devices devices(ring.size());
  const std::optional<model::ResourceId> gpu = cluster.find_resource("gpu");
  if (!gpu) {
    return devices;
  }
  const int each = static_cast<int>(job.demand[*gpu]);
  for (std::size_t rank = 0; rank < ring.size(); ++rank) {
    int next = 0;
    for (std::size_t s = 0; s < ring[rank].index(); ++s) {
      next += static_cast<int>(cluster.server(model::ServerId::from_index(s)).capacity[*gpu]);
    }
    while (static_cast<int>(devices[rank].size()) < each) {
      if (used.insert(next).second) {
        devices[rank].push_back(next);
      }
      ++next;
    }
  }
  return devices;
}

std::string devices_text(const Devices& devices) {
  if (std::ranges::all_of(devices, [](const std::vector<int>& rank) { return rank.empty(); })) {
    return "";
  }
  std::vector<std::string> parts;
  for (const std::vector<int>& rank : devices) {
    parts.push_back(fmt::format("{}", fmt::join(rank, ",")));
  }
  return fmt::format("{}", fmt::join(parts, ";"));
}

Devices parse_devices(std::string_view text, std::size_t num_workers) {
  Devices devices(num_workers);
  std::istringstream ranks{std::string(text)};
  std::string rank;
  for (std::size_t i = 0; i < num_workers && std::getline(ranks, rank, ';'); ++i) {
    std::istringstream numbers(rank);
    std::string number;
    while (std::getline(numbers, number, ',')) {
      devices[i].push_back(std::atoi(number.c_str()));
    }
  }
  return devices;
}

}  // namespace maypole::daemon
