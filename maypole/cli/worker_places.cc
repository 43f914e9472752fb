// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/worker_places.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace maypole::cli {

elastic::Seats seats_of(const std::vector<daemon::WorkerPlace>& ring) {
  elastic::Seats seats;
  for (const daemon::WorkerPlace& place : ring) {
    seats.push_back(place.server);
  }
  return seats;
}

JobSpec elastic_spec(const RunOptions& options, const ElasticOptions& elastic, const AgentLink& agent, const std::string& secret,
                     const std::vector<int>& devices) {
  JobSpec spec = spec_of(options, agent, elastic.name, secret);
  spec.environment["MAYPOLE_ELASTIC_WORKERS"] = fmt::format("{}:{}:{}", elastic.min_workers, elastic.workers, elastic.max_workers);
  if (!devices.empty()) {
    spec.environment["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(devices, ","));
  }
  spec.world_size = std::max(elastic.workers, agent.place.first_rank + 1);
  spec.first_rank = agent.place.first_rank;
  spec.num_workers = 1;
  spec.bind_address = bind_address(agent);
  spec.elastic = true;
  spec.environment.erase("MAYPOLE_BANDWIDTH");  // each announcement says it
  return spec;
}

WorkerPlaces::Place WorkerPlaces::choose(const std::string& host, const std::vector<Place>& taken) {
  Place chosen;
  if (host.empty()) {
    std::vector<int> used(hosts_.size());
    for (const Place& place : taken) {
      ++used[place.host];
    }
    while (chosen.host + 1 < hosts_.size() && used[chosen.host] >= hosts_[chosen.host].place.num_workers) {
      ++chosen.host;
    }
    return chosen;
  }
  const auto found = std::ranges::find(hosts_, host, [](const AgentLink& pattern) { return pattern.place.host.name; });
  chosen.host = static_cast<std::size_t>(found - hosts_.begin());
  if (found == hosts_.end()) {  // a ring may go to any server that this machine plays
    AgentLink pattern = agent({}, 0);
    pattern.place.host.name = host;
    hosts_.push_back(std::move(pattern));
  }
  for (const daemon::WorkerPlace& place : ring_) {
    if (place.server == host && std::ranges::find(taken, place.devices, &Place::devices) == taken.end()) {
      chosen.devices = place.devices;
      break;
    }
  }
  return chosen;
}

AgentLink WorkerPlaces::agent(const Place& place, int worker) const {
  const AgentLink& pattern = hosts_[place.host];
  AgentLink agent;
  agent.place = pattern.place;
  agent.place.first_rank = worker;
  agent.place.num_workers = 1;
  agent.address = pattern.address;
  agent.direct = pattern.direct;
  agent.command = pattern.command;
  return agent;
}

}  // namespace maypole::cli
