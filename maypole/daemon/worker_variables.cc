// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/worker_variables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

namespace maypole::daemon {

namespace {

// Belong to one job, or to the daemon and its clients.
constexpr std::array<std::string_view, 19> kOwned = {
    "RANK",           "WORLD_SIZE",         "LOCAL_RANK",           "LOCAL_WORLD_SIZE",   "MASTER_ADDR",
    "MASTER_PORT",    "MAYPOLE_JOB_ID",     "MAYPOLE_SECRET",       "MAYPOLE_RENDEZVOUS", "MAYPOLE_RENDEZVOUS_FD",
    "MAYPOLE_HOST",   "MAYPOLE_REPORT_DIR", "MAYPOLE_TIMELINE_DIR", "GROUP_RANK",         "TORCHELASTIC_USE_AGENT_STORE",
    "MAYPOLE_WORKER", "MAYPOLE_TOKEN",      "MAYPOLE_ADDRESS",      "MAYPOLE_DATA_DIR"};

using Variables = std::map<std::string, std::string>;

Variables common_variables(const EpochOrder& order, const MeetingPoint& meeting, const std::vector<std::string>& own, int cores) {
  Variables variables;
  for (const std::string& variable : own) {
    const std::size_t equals = variable.find('=');
    if (equals != std::string::npos) {
      variables[variable.substr(0, equals)] = variable.substr(equals + 1);
    }
  }
  for (const auto& [name, value] : order.environment) {
    variables[name] = value;
  }
  std::erase_if(variables, [](const auto& variable) { return std::ranges::find(kOwned, variable.first) != kOwned.end(); });
  const int num_workers = static_cast<int>(order.workers.size());
  const int threads = order.cpus_per_worker > 0 ? static_cast<int>(std::floor(order.cpus_per_worker)) : cores / num_workers;
  variables.try_emplace("OMP_NUM_THREADS", std::to_string(std::max(1, threads)));
  variables.try_emplace("PYTHONUNBUFFERED", "1");  // output is a pipe; without it Python's lines come late
  variables.try_emplace("MAYPOLE_TIMEOUT", "30min");
  variables.try_emplace("MAYPOLE_HEARTBEAT", "2s");
  variables["WORLD_SIZE"] = std::to_string(num_workers);
  variables["MAYPOLE_JOB_ID"] = std::to_string(order.id.job);
  variables["MAYPOLE_SECRET"] = meeting.secret;
  if (meeting.rendezvous_port > 0) {
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = std::to_string(meeting.master_port);
    variables["MAYPOLE_RENDEZVOUS"] = fmt::format("127.0.0.1:{}", meeting.rendezvous_port);
  }
  if (order.edge_bandwidth.limited() && (num_workers > 1 || order.elastic)) {
    constexpr double kBitsPerByte = 8;
    variables["MAYPOLE_BANDWIDTH"] =
        fmt::format("{:.6f}Mbps", order.edge_bandwidth.bytes_per_second / base::kPayloadShare * kBitsPerByte / 1e6);
  }
  return variables;
}

}  // namespace

std::vector<std::vector<std::string>> worker_variables(const EpochOrder& order, const MeetingPoint& meeting,
                                                       const std::vector<std::string>& own, int cores) {
  const Variables common = common_variables(order, meeting, own, cores);
  std::map<std::string, int> on_server;
  for (const WorkerPlace& place : order.workers) {
    ++on_server[place.server];
  }
  std::map<std::string, int> next_local;
  std::vector<std::vector<std::string>> environments;
  for (std::size_t rank = 0; rank < order.workers.size(); ++rank) {
    const WorkerPlace& place = order.workers[rank];
    Variables variables = common;
    variables["RANK"] = std::to_string(rank);
    variables["LOCAL_RANK"] = std::to_string(next_local[place.server]++);
    variables["LOCAL_WORLD_SIZE"] = std::to_string(on_server[place.server]);
    variables["MAYPOLE_HOST"] = place.server;
    if (rank == 0 && meeting.rendezvous_fd >= 0) {
      variables["MAYPOLE_RENDEZVOUS_FD"] = std::to_string(meeting.rendezvous_fd);
    }
    if (!place.devices.empty()) {
      variables["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(place.devices, ","));
      variables["LOCAL_RANK"] = "0";  // scripts choose their device by it, and see no other worker's
    }
    std::vector<std::string>& environment = environments.emplace_back();
    for (const auto& [name, value] : variables) {
      environment.push_back(fmt::format("{}={}", name, value));
    }
  }
  return environments;
}

}  // namespace maypole::daemon
