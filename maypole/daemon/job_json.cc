// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/job_json.h"

#include "maypole/formats/job_fields.h"
#include "maypole/formats/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace maypole::daemon {

namespace {

using formats::json_number;
using formats::json_string;

std::string json_strings(const std::vector<std::string>& texts) {
  if (texts.empty()) {
    return "[]";
  }
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

void append_job_json(const Job& job, std::string& text) {
  const JobRow& row = job.row;
  const std::vector<std::string> ring = job.ring ? job.ring->ring : std::vector<std::string>();
  fmt::format_to(std::back_inserter(text), R"({{"id": "{}", "name": )", row.number);
  text += json_string(job.file.name);
  text += R"(, "owner": )";
  text += json_string(row.owner);
  text += R"(, "state": ")";
  text += name_of(row.state);
  text += R"(", "reason": )";
  text += json_string(job.reason());
  fmt::format_to(std::back_inserter(text), R"(, "workers": {}, "min_workers": {}, "max_workers": {}, "servers": )", ring.size(),
                 job.file.job.min_workers, job.file.job.max_workers);
  text += json_strings(distinct(ring));
  text += R"(, "ring": )";
  text += json_strings(ring);
  text += R"(, "submitted_s": )";
  text += json_number(row.submitted_s);
  text += R"(, "started_s": )";
  text += json_number(row.started_s);
  text += R"(, "finished_s": )";
  text += json_number(row.finished_s);
  text += R"(, "exit_code": )";
  text += row.exit_code ? std::to_string(*row.exit_code) : "null";
  fmt::format_to(std::back_inserter(text), R"(, "retries": {}, "resizes": 0}})", row.failures);
}

std::string job_json(const Job& job) {
  std::string text;
  append_job_json(job, text);
  return text;
}

std::string server_json(const Supervisor& supervisor, model::ServerId id) {
  const model::Cluster& cluster = supervisor.controller().cluster();
  const model::Server& server = cluster.server(id);
  std::vector<std::string> jobs;
  for (const std::int64_t number : supervisor.holding()) {
    const Job& job = *supervisor.find(number);
    if (job.ring && std::ranges::find(job.ring->ring, server.id) != job.ring->ring.end()) {
      jobs.push_back(job.row.id());
    }
  }
  const auto closed = supervisor.closed().find(id);
  return fmt::format(R"({{"id": {}, "rack": {}, "closed": {}, "capacity": {}, "held": {}, "jobs": {}}})", json_string(server.id),
                     server.rack.valid() ? json_string(cluster.rack(server.rack)) : "null",
                     closed == supervisor.closed().end() ? "null" : json_string(closed->second),
                     formats::amounts_json(server.capacity, cluster), formats::amounts_json(supervisor.held_on(id), cluster),
                     json_strings(jobs));
}

std::string cluster_json(const Supervisor& supervisor, double slot_s) {
  std::vector<std::string> servers;
  for (std::size_t i = 0; i < supervisor.controller().cluster().num_servers(); ++i) {
    servers.push_back(server_json(supervisor, model::ServerId::from_index(i)));
  }
  return fmt::format(R"({{"policy": {}, "slot_s": {}, "refused": {}, "servers": [{}]}})",
                     json_string(supervisor.controller().policy().name()), json_number(slot_s),
                     supervisor.refusal().empty() ? "null" : json_string(supervisor.refusal()), fmt::join(servers, ", "));
}

}  // namespace maypole::daemon
