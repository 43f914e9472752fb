// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/job_json.h"

#include "maypole/formats/job_fields.h"
#include "maypole/formats/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

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

std::vector<std::string> distinct(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  const auto doubled = std::ranges::unique(texts);
  texts.erase(doubled.begin(), doubled.end());
  return texts;
}

}  // namespace

std::string job_json(const Job& job) {
  const JobRow& row = job.row;
  const std::vector<std::string> ring = job.ring ? job.ring->ring : std::vector<std::string>();
  return fmt::format(
      R"({{"id": {}, "name": {}, "owner": {}, "state": "{}", "reason": {}, "workers": {}, "min_workers": {}, "max_workers": {}, )"
      R"("servers": {}, "ring": {}, "submitted_s": {}, "started_s": {}, "finished_s": {}, "exit_code": {}, "retries": {}, "resizes": 0}})",
      json_string(row.id()), json_string(job.file.name), json_string(row.owner), name_of(row.state), json_string(row.reason), ring.size(),
      job.file.job.min_workers, job.file.job.max_workers, json_strings(distinct(ring)), json_strings(ring), json_number(row.submitted_s),
      json_number(row.started_s), json_number(row.finished_s), row.exit_code ? std::to_string(*row.exit_code) : "null", row.failures);
}

std::string cluster_json(const Supervisor& supervisor, double slot_s) {
  const model::Cluster& cluster = supervisor.controller().cluster();
  std::vector<std::string> servers;
  for (std::size_t i = 0; i < cluster.num_servers(); ++i) {
    const auto id = model::ServerId::from_index(i);
    const model::Server& server = cluster.server(id);
    std::vector<std::string> jobs;
    for (const std::int64_t number : supervisor.holding()) {
      const Job& job = *supervisor.find(number);
      if (job.ring && std::ranges::find(job.ring->ring, server.id) != job.ring->ring.end()) {
        jobs.push_back(job.row.id());
      }
    }
    servers.push_back(fmt::format(R"({{"id": {}, "rack": {}, "capacity": {}, "held": {}, "jobs": {}}})", json_string(server.id),
                                  server.rack.valid() ? json_string(cluster.rack(server.rack)) : "null",
                                  formats::amounts_json(server.capacity, cluster), formats::amounts_json(supervisor.held_on(id), cluster),
                                  json_strings(jobs)));
  }
  return fmt::format(R"({{"policy": {}, "slot_s": {}, "refused": {}, "servers": [{}]}})",
                     json_string(supervisor.controller().policy().name()), json_number(slot_s),
                     supervisor.refusal().empty() ? "null" : json_string(supervisor.refusal()), fmt::join(servers, ", "));
}

}  // namespace maypole::daemon
