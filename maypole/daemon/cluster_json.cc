// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/cluster_json.h"

#include "maypole/formats/job_fields.h"
#include "maypole/formats/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <unordered_map>

namespace maypole::daemon {

namespace {

using formats::json_number;
using formats::json_string;

std::string json_strings(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts) {
    quoted.push_back(json_string(text));
  }
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

}  // namespace

ClusterLoad cluster_load(const Supervisor& supervisor) {
  const model::Cluster& cluster = supervisor.controller().cluster();
  std::unordered_map<std::string_view, std::vector<std::string>> jobs;  // by server
  std::unordered_map<std::string_view, double> reserved;                // by link
  std::unordered_map<std::string_view, model::Amounts> held;            // by server
  for (const std::int64_t number : supervisor.holding()) {
    const Job& job = *supervisor.find(number);
    if (!job.ring) {
      continue;
    }
    for (const std::string& server : job.ring->ring) {
      std::vector<std::string>& there = jobs[server];
      if (there.empty() || there.back() != job.row.id()) {
        there.push_back(job.row.id());
      }
      model::Amounts& amounts = held.try_emplace(server, cluster.num_resources(), 0).first->second;
      for (std::size_t i = 0; i < job.file.job.demand.size(); ++i) {
        amounts[model::ResourceId::from_index(i)] += job.file.job.demand[model::ResourceId::from_index(i)];
      }
    }
    for (const std::vector<std::string>& edge : job.ring->edges) {
      for (const std::string& link : edge) {
        reserved[link] += job.ring->bandwidth.bytes_per_second;
      }
    }
  }
  ClusterLoad load;
  for (std::size_t i = 0; i < cluster.num_servers(); ++i) {
    const auto id = model::ServerId::from_index(i);
    const model::Server& server = cluster.server(id);
    const auto closed = supervisor.closed().find(id);
    const model::Amounts& amounts = held.try_emplace(server.id, cluster.num_resources(), 0).first->second;
    load.servers.push_back(fmt::format(R"({{"id": {}, "rack": {}, "closed": {}, "capacity": {}, "held": {}, "jobs": {}}})",
                                       json_string(server.id), server.rack.valid() ? json_string(cluster.rack(server.rack)) : "null",
                                       closed == supervisor.closed().end() ? "null" : json_string(closed->second),
                                       formats::amounts_json(server.capacity, cluster), formats::amounts_json(amounts, cluster),
                                       json_strings(jobs[server.id])));
  }
  for (std::size_t i = 0; i < cluster.num_links(); ++i) {
    const model::Link& link = cluster.link(model::LinkId::from_index(i));
    load.links.push_back(fmt::format(R"({{"id": {}, "from": {}, "to": {}, "bandwidth": {}, "reserved": {}}})", json_string(link.id),
                                     json_string(cluster.node_name(link.from)), json_string(cluster.node_name(link.to)),
                                     formats::limit_json(link.bandwidth), json_number(reserved[link.id])));
  }
  return load;
}

std::string cluster_json(const Supervisor& supervisor, double slot_s) {
  const ClusterLoad load = cluster_load(supervisor);
  std::vector<std::string> switches;
  for (const model::Switch& each : supervisor.controller().cluster().parts().switches) {
    switches.push_back(fmt::format(R"({{"id": {}, "rack": {}}})", json_string(each.id),
                                   each.rack.valid() ? json_string(supervisor.controller().cluster().rack(each.rack)) : "null"));
  }
  return fmt::format(R"({{"policy": {}, "slot_s": {}, "refused": {}, "servers": [{}], "switches": [{}], "links": [{}]}})",
                     json_string(supervisor.controller().policy().name()), json_number(slot_s),
                     supervisor.refusal().empty() ? "null" : json_string(supervisor.refusal()), fmt::join(load.servers, ", "),
                     fmt::join(switches, ", "), fmt::join(load.links, ", "));
}

}  // namespace maypole::daemon
