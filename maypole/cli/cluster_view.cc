// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/cluster_view.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace maypole::cli {

namespace {

constexpr std::string_view kAnswer = "the daemon's answer";

ServerView read_server(const formats::Value& value) {
  formats::Map map(value);
  ServerView server;
  server.id = map["id"].text();
  const std::vector<formats::Value::Entry> capacity = map["capacity"].entries();
  const std::vector<formats::Value::Entry> held = map["held"].entries();
  for (std::size_t i = 0; i < capacity.size() && i < held.size(); ++i) {
    server.amounts.push_back({capacity[i].name, held[i].value.number(), capacity[i].value.number()});
  }
  for (const formats::Value& job : map["jobs"].list()) {
    server.jobs.push_back(job.text());
  }
  if (const formats::Value closed = map["closed"]; closed.present()) {
    server.closed = closed.text();
  }
  return server;
}

}  // namespace

absl::StatusOr<ClusterView> parse_cluster_view(std::string_view json) {
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(json, kAnswer));
  formats::Problems problems{std::string(kAnswer)};
  formats::Map map(formats::Value(&node, 1, "", &problems));
  ClusterView cluster;
  cluster.policy = map["policy"].text();
  cluster.slot_s = map["slot_s"].number();
  if (const formats::Value refused = map["refused"]; refused.present()) {
    cluster.refused = refused.text();
  }
  for (const formats::Value& server : map["servers"].list()) {
    cluster.servers.push_back(read_server(server));
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return cluster;
}

absl::StatusOr<ServerView> parse_server_view(std::string_view json) {
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(json, kAnswer));
  formats::Problems problems{std::string(kAnswer)};
  ServerView server = read_server(formats::Value(&node, 1, "", &problems));
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return server;
}

std::string amount_text(const AmountView& amount) {
  const auto text = [&](double value) { return amount.resource == "memory" ? base::format_bytes(value) : fmt::format("{:g}", value); };
  return fmt::format("{} of {} {}", text(amount.held), text(amount.capacity), amount.resource);
}

std::string server_text(const ServerView& server) {
  std::vector<std::string> amounts;
  for (const AmountView& amount : server.amounts) {
    amounts.push_back(amount_text(amount));
  }
  return fmt::format("{}: {} taken{}{}{}{}", server.id, fmt::join(amounts, ", "), server.jobs.empty() ? "" : " by ",
                     fmt::join(server.jobs, ", "), server.closed.empty() ? "" : "; ", server.closed);
}

}  // namespace maypole::cli
