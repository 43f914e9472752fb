// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the workers of an elastic run go: hosts with slots that are filled in order, or the places of a ring that a scheduler chose.

#include "maypole/cli/agent_link.h"
#include "maypole/cli/elastic_launch.h"
#include "maypole/daemon/head_messages.h"
#include "maypole/elastic/seating.h"

#include <cstddef>
#include <string>
#include <vector>

namespace maypole::cli {

[[nodiscard]] elastic::Seats seats_of(const std::vector<daemon::WorkerPlace>& ring);

/// What the agent of one worker is told first.
[[nodiscard]] JobSpec elastic_spec(const RunOptions& options, const ElasticOptions& elastic, const AgentLink& agent,
                                   const std::string& secret, const std::vector<int>& devices);

class WorkerPlaces {
 public:
  /// `hosts`: patterns of agents, never started themselves.
  explicit WorkerPlaces(std::vector<AgentLink> hosts) : hosts_(std::move(hosts)) {}
  void set_ring(std::vector<daemon::WorkerPlace> ring) { ring_ = std::move(ring); }

  struct Place {
    std::size_t host = 0;
    std::vector<int> devices = {};
  };
  /// A place on the host of that name; without a name on the first host with a free slot. `taken`: by workers that may have processes. A
  /// host whose lost worker has not ended yet may be over-full for a moment.
  [[nodiscard]] Place choose(const std::string& host, const std::vector<Place>& taken);
  /// An agent for one worker there, not started.
  [[nodiscard]] AgentLink agent(const Place& place, int worker) const;
  [[nodiscard]] const AgentLink& host(std::size_t host) const { return hosts_[host]; }

 private:
  std::vector<AgentLink> hosts_;
  std::vector<daemon::WorkerPlace> ring_;
};

}  // namespace maypole::cli
