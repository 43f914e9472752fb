// SPDX-License-Identifier: Apache-2.0
#pragma once

// What those who look on are told: from rows that have become durable and from decisions to events, and the little that is remembered of
// the past: how many workers a job had when, the latest decisions. Memories are of this life of the daemon.
//
//   job        the job object of API v1
//   gone       {"id"}: an ended job is kept no longer
//   decision   one of GET /v1/decisions
//   cluster    {"servers": [...], "links": [...]}: those of GET /v1/cluster that are not any more what they were

#include "maypole/daemon/event_log.h"
#include "maypole/daemon/job_row.h"
#include "maypole/daemon/supervisor.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace maypole::daemon {

/// The daemon's core thread owns it. Borrows both.
class EventFeed {
 public:
  EventFeed(EventLog& log, const Supervisor& supervisor, double now_s);

  /// After a commit: rows that are durable now.
  void tell(std::span<const JobRow> rows, double now_s);
  void tell(std::vector<DecisionNote> decisions);
  /// To be called now and then: the cluster's load is told at most once in kLoadSeconds.
  void advance(double now_s);
  [[nodiscard]] std::optional<double> next_s() const;

  /// {"since_s", "workers": [[time, number], ...]}: since when it is known, and each change.
  [[nodiscard]] std::string history_json(std::int64_t job) const;
  /// {"decisions": [...]}: the latest, of a job those that changed it; oldest first.
  [[nodiscard]] std::string decisions_json(std::optional<std::int64_t> job) const;
  [[nodiscard]] EventLog& log() { return *log_; }

 private:
  static constexpr double kLoadSeconds = 0.25;
  struct Told {
    std::string text;
    std::vector<std::int64_t> jobs;
  };
  void forget();
  void remember(const Job& job, double now_s);

  EventLog* log_;
  const Supervisor* supervisor_;
  double since_s_;
  std::unordered_map<std::int64_t, std::deque<std::pair<double, std::size_t>>> workers_;
  std::unordered_map<std::int64_t, int> epochs_;  // of jobs that hold capacity
  std::deque<Told> decisions_;
  std::uint64_t num_decisions_ = 0;
  std::map<model::ServerId, std::string> closed_;
  bool load_changed_ = false;
  double load_told_s_ = 0;
  std::vector<std::string> servers_;  // as told last
  std::vector<std::string> links_;
};

}  // namespace maypole::daemon
