// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/event_feed.h"

#include "maypole/daemon/cluster_json.h"
#include "maypole/daemon/job_json.h"
#include "maypole/formats/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace maypole::daemon {

namespace {

using formats::json_number;
using formats::json_string;

constexpr std::size_t kMostDecisions = 512;
constexpr std::size_t kMostChanges = 512;  // of one job's workers

/// What `now` has that `then` has not; `then` becomes `now`.
std::vector<std::string> changed(std::vector<std::string>& then, std::vector<std::string> now) {
  std::vector<std::string> news;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (i >= then.size() || then[i] != now[i]) {
      news.push_back(now[i]);
    }
  }
  then = std::move(now);
  return news;
}

}  // namespace

EventFeed::EventFeed(EventLog& log, const Supervisor& supervisor, double now_s) : log_(&log), supervisor_(&supervisor), since_s_(now_s) {
  for (const auto& [number, job] : supervisor.jobs()) {
    remember(job, now_s);
  }
  closed_ = supervisor.closed();
  ClusterLoad load = cluster_load(supervisor);
  servers_ = std::move(load.servers);
  links_ = std::move(load.links);
}

void EventFeed::remember(const Job& job, double now_s) {
  const std::int64_t number = job.row.number;
  const std::size_t workers = job.ring ? job.ring->ring.size() : 0;
  std::deque<std::pair<double, std::size_t>>& past = workers_[number];
  if (past.empty() || past.back().second != workers) {
    past.emplace_back(now_s, workers);
    load_changed_ = true;
  }
  if (past.size() > kMostChanges) {
    past.pop_front();
  }
  if (workers == 0) {
    epochs_.erase(number);
  } else if (int& epoch = epochs_[number]; epoch != job.row.epoch) {  // as many workers, perhaps elsewhere
    epoch = job.row.epoch;
    load_changed_ = true;
  }
}

void EventFeed::tell(std::span<const JobRow> rows, double now_s) {
  for (const JobRow& row : rows) {
    if (const Job* job = supervisor_->find(row.number)) {
      remember(*job, now_s);
      log_->append("job", job_json(*job));
    }
  }
  if (!rows.empty()) {
    log_->publish();
  }
}

void EventFeed::tell(std::vector<DecisionNote> decisions) {
  for (const DecisionNote& note : decisions) {
    Told told;
    std::vector<std::string> changes;
    for (const DecisionNote::Change& change : note.changes) {
      told.jobs.push_back(change.job);
      changes.push_back(fmt::format(R"({{"id": "{}", "from": {}, "to": {}}})", change.job, change.from, change.to));
    }
    told.text = fmt::format(
        R"({{"number": {}, "at_s": {}, "seconds": {}, "utility": {}, "bound": {}, "gap": {}, "limited": {}, "note": {}, "refused": {}, )"
        R"("jobs": {}, "changes": [{}]}})",
        ++num_decisions_, json_number(note.at_s), json_number(note.seconds), json_number(note.utility), json_number(note.bound),
        json_number(note.gap), note.limited, json_string(note.note), note.refused.empty() ? "null" : json_string(note.refused), note.active,
        fmt::join(changes, ", "));
    log_->append("decision", told.text);
    decisions_.push_back(std::move(told));
    if (decisions_.size() > kMostDecisions) {
      decisions_.pop_front();
    }
  }
  if (!decisions.empty()) {
    log_->publish();
  }
}

void EventFeed::forget() {
  std::erase_if(workers_, [&](const auto& each) {
    const bool gone = supervisor_->find(each.first) == nullptr;
    if (gone) {
      log_->append("gone", fmt::format(R"({{"id": "{}"}})", each.first));
    }
    return gone;
  });
  log_->publish();
}

void EventFeed::advance(double now_s) {
  if (workers_.size() > supervisor_->jobs().size()) {
    forget();
  }
  if (closed_ != supervisor_->closed()) {
    closed_ = supervisor_->closed();
    load_changed_ = true;
  }
  if (!load_changed_ || now_s < load_told_s_ + kLoadSeconds) {
    return;
  }
  load_changed_ = false;
  load_told_s_ = now_s;
  ClusterLoad load = cluster_load(*supervisor_);
  const std::vector<std::string> servers = changed(servers_, std::move(load.servers));
  const std::vector<std::string> links = changed(links_, std::move(load.links));
  if (!servers.empty() || !links.empty()) {
    log_->append("cluster", fmt::format(R"({{"servers": [{}], "links": [{}]}})", fmt::join(servers, ", "), fmt::join(links, ", ")));
    log_->publish();
  }
}

std::optional<double> EventFeed::next_s() const { return load_changed_ ? std::optional(load_told_s_ + kLoadSeconds) : std::nullopt; }

std::string EventFeed::history_json(std::int64_t job) const {
  std::vector<std::string> changes;
  if (const auto found = workers_.find(job); found != workers_.end()) {
    for (const auto& [at_s, workers] : found->second) {
      changes.push_back(fmt::format("[{}, {}]", json_number(at_s), workers));
    }
  }
  return fmt::format(R"({{"since_s": {}, "workers": [{}]}})", json_number(since_s_), fmt::join(changes, ", "));
}

std::string EventFeed::decisions_json(std::optional<std::int64_t> job) const {
  std::vector<std::string> texts;
  for (const Told& told : decisions_) {
    if (!job || std::ranges::find(told.jobs, *job) != told.jobs.end()) {
      texts.push_back(told.text);
    }
  }
  return fmt::format("{{\"decisions\": [{}]}}", fmt::join(texts, ",\n "));
}

}  // namespace maypole::daemon
