// SPDX-License-Identifier: Apache-2.0
#pragma once

// A supervisor over a small cluster, with a hand that moves time and plays the workers.

#include "maypole/daemon/supervisor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace maypole::daemon {

/// Servers s0, s1, ... with so many cpus each, one rack, links of 1e9 bytes a second to it.
inline model::Cluster small_cluster(int num_servers = 2, double cpus = 4) {
  model::ClusterParts parts;
  parts.resources = {"cpu"};
  parts.racks = {"r0"};
  parts.switches = {{"r0", model::RackId(0)}};
  for (int i = 0; i < num_servers; ++i) {
    model::Amounts capacity(1, cpus);
    parts.servers.push_back({fmt::format("s{}", i), model::RackId(0), capacity});
  }
  for (int i = 0; i < num_servers; ++i) {
    const model::NodeId server(i);
    const model::NodeId rack(num_servers);
    parts.links.push_back({fmt::format("s{}>r0", i), server, rack, {1e9}});
    parts.links.push_back({fmt::format("r0>s{}", i), rack, server, {1e9}});
  }
  return *model::Cluster::make(std::move(parts));
}

class SupervisorHand {
 public:
  explicit SupervisorHand(const std::string& policy = "gadget", model::Cluster cluster = small_cluster(),
                          const SupervisorOptions& options = {})
      : supervisor(std::move(cluster), *sched::make_policy(policy, {.ageing_per_s = 0}), options, clock, now_s) {}

  /// Submits {"version": 1, "command": ["x"], <more>} as durable; returns its number.
  std::int64_t submit(const std::string& more = "") {
    const auto row = supervisor.admit("ann", R"({"version": 1, "command": ["x"])" + (more.empty() ? "" : ", " + more) + "}", now_s);
    EXPECT_TRUE(row.ok()) << row.status();
    supervisor.add(*row);
    return row->number;
  }
  /// Lets time pass in the steps in which a daemon would wake up, and notes the actions.
  void pass(double seconds) {
    const double end = now_s + seconds;
    do {
      supervisor.advance(now_s);
      for (Action& action : supervisor.take_actions()) {
        actions.push_back(std::move(action));
      }
      (void)supervisor.take_changes();
      now_s = std::max(std::min(supervisor.next_s(), end), now_s + 0.001);
    } while (now_s < end);
    now_s = end;
  }
  void started(std::int64_t job, int rank) {
    supervisor.on_worker({.kind = WorkerEventKind::kStarted, .id = {job, row(job).epoch}, .rank = rank}, now_s);
  }
  void all_started(std::int64_t job) {
    for (int rank = 0; rank < workers(job); ++rank) {
      started(job, rank);
    }
  }
  void ended(std::int64_t job, int rank, int code = 0, int signal = 0) {
    supervisor.on_worker({.kind = WorkerEventKind::kEnded, .id = {job, row(job).epoch}, .rank = rank, .exit = {code, signal, now_s, ""}},
                         now_s);
  }
  void all_ended(std::int64_t job, int code = 0, int signal = 0) {
    const int size = workers(job);
    for (int rank = 0; rank < size; ++rank) {
      ended(job, rank, code, signal);
    }
  }
  [[nodiscard]] const JobRow& row(std::int64_t job) const { return supervisor.find(job)->row; }
  [[nodiscard]] JobState state(std::int64_t job) const { return row(job).state; }
  [[nodiscard]] int workers(std::int64_t job) const {
    const Job& found = *supervisor.find(job);
    return found.ring ? static_cast<int>(found.ring->ring.size()) : 0;
  }
  template <typename Kind>
  [[nodiscard]] std::vector<Kind> all() const {
    std::vector<Kind> found;
    for (const Action& action : actions) {
      if (const auto* one = std::get_if<Kind>(&action)) {
        found.push_back(*one);
      }
    }
    return found;
  }

  base::ManualClock clock;
  double now_s = 1'000'000;
  Supervisor supervisor;
  std::vector<Action> actions;
};

}  // namespace maypole::daemon
