// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/elastic/coordinator.h"

#include <algorithm>
#include <utility>

namespace maypole::elastic {

bool Coordinator::resizable() const {
  return !failed_ && !finishing_ && membership_.epoch > 0 && !members_alive().empty() && all_looping();
}

absl::Status Coordinator::check_change() const {
  const auto not_now = absl::StatusCode::kUnavailable;
  if (failed_ || finishing_) {
    return base::error(not_now, "training is over");
  }
  if (!resizable()) {
    return base::error(not_now, "the script is not in the loop of maypole.torch.elastic: only there can workers come and go");
  }
  if (resize_) {
    return base::error(not_now, "a resize from {} to {} workers is under way", resize_->from, target_);
  }
  return absl::OkStatus();
}

absl::Status Coordinator::check_resize(SizeRange range) const {
  const auto wrong = absl::StatusCode::kInvalidArgument;
  if (range.min < 1 || range.min > range.max) {
    return base::error(wrong, "{}:{} is no range of workers", range.min, range.max);
  }
  if (range.min < options_.min_workers || range.max > options_.max_workers) {
    return base::error(wrong, "{} is outside of --workers {}:{}, with which this run was started",
                       range.min == range.max ? fmt::format("{} workers", range.min) : fmt::format("{}:{}", range.min, range.max),
                       options_.min_workers, options_.max_workers);
  }
  MAYPOLE_RETURN_IF_ERROR(check_change());
  if (range.min == range.max && range.min == target_) {
    return base::error(wrong, "the run has {} already", base::counted(static_cast<std::size_t>(target_), "worker"));
  }
  return absl::OkStatus();
}

void Coordinator::on_resize(std::uint64_t request, SizeRange range, base::TimePoint now) {
  if (absl::Status status = check_resize(range); !status.ok()) {
    act(Answer{request, std::move(status), ""});
    return;
  }
  const int before = target_;
  if (range.min != range.max) {
    range_ = range;
  }
  target_ = std::clamp(target_, range.min, range.max);
  if (target_ == before) {
    act(Answer{request, absl::OkStatus(), fmt::format("{}:{} workers from now on, {} as before", range.min, range.max, target_)});
    return;
  }
  if (range.min == range.max) {  // a number of its own lifts a range that was set before
    range_ = {options_.min_workers, options_.max_workers};
  }
  resize_ = Resize{request, before, now};
  while (num_workers() < target_) {
    start_worker("", now);
  }
  for (const State state : {State::kStarting, State::kReady}) {  // those that are not needed any more, the last started first
    std::vector<WorkerId> waiting = in_state(state);
    while (num_workers() > target_ && !waiting.empty()) {
      end_unneeded({waiting.back()}, now);
      waiting.pop_back();
    }
  }
  advance(now);
}

void Coordinator::on_seats(std::uint64_t request, Seats seats, base::TimePoint now, EdgeRates edges) {
  absl::Status status = check_change();
  const int size = static_cast<int>(seats.size());
  if (status.ok() && (seats_.empty() || size < options_.min_workers || size > options_.max_workers)) {
    status = base::error(absl::StatusCode::kInvalidArgument, "{} is outside of {}:{}, with which this run was started",
                         base::counted(seats.size(), "worker"), options_.min_workers, options_.max_workers);
  }
  if (!status.ok()) {
    act(Answer{request, std::move(status), ""});
    return;
  }
  if (seats == seats_ && rates_of(edges, seats.size()) == rates_of(edges_, seats.size())) {
    act(Answer{request, absl::OkStatus(), "the ring is as before"});
    return;
  }
  resize_ = Resize{request, target_, now};
  seats_ = std::move(seats);
  edges_ = std::move(edges);
  target_ = size;
  std::vector<WorkerId> known = members_alive();
  const std::vector<WorkerId> ready = in_state(State::kReady);
  const std::vector<WorkerId> starting = in_state(State::kStarting);
  known.insert(known.end(), ready.begin(), ready.end());
  known.insert(known.end(), starting.begin(), starting.end());
  std::vector<WorkerId> unneeded = surplus(seats_, sitters(known));
  std::erase_if(unneeded, [this](WorkerId id) { return find(id)->state == State::kMember; });
  end_unneeded(unneeded, now);
  while (const std::optional<std::string> host = vacancy()) {
    start_worker(*host, now);
  }
  advance(now);
}

void Coordinator::end_unneeded(const std::vector<WorkerId>& workers, base::TimePoint now) {
  for (const WorkerId id : workers) {
    set_state(*find(id), State::kLeaving, now);
    act(KillWorker{id});
  }
}

// --- seats ---

std::vector<Sitter> Coordinator::sitters(const std::vector<WorkerId>& workers) const {
  std::vector<Sitter> found;
  found.reserve(workers.size());
  for (const WorkerId id : workers) {
    found.push_back({id, workers_.at(id).host});
  }
  return found;
}

std::optional<std::string> Coordinator::vacancy() const {
  if (seats_.empty()) {
    return num_workers() < target_ ? std::optional<std::string>("") : std::nullopt;
  }
  std::vector<WorkerId> there;
  for (const auto& [id, worker] : workers_) {
    if (worker.state != State::kLeaving) {
      there.push_back(id);
    }
  }
  const Seats left = vacant(seats_, sitters(there));
  return left.empty() ? std::nullopt : std::optional(left.front());
}

void Coordinator::settle_for_less() {
  if (seats_.empty()) {
    target_ = std::min(target_, num_workers());
    return;
  }
  // Where a change of the ring fails, members that were to leave may be all that is left.
  seats_.clear();
  for (const Sitter& member : sitters(members_alive())) {
    seats_.push_back(member.host);
  }
  for (const State state : {State::kReady, State::kStarting}) {
    for (const Sitter& newcomer : sitters(in_state(state))) {
      seats_.push_back(newcomer.host);
    }
  }
  target_ = static_cast<int>(seats_.size());
  edges_ = rates_of(edges_, 1);  // for one that is not there what was reserved along the way may be less
}

Change Coordinator::next_change() const {
  const std::vector<WorkerId> alive = members_alive();
  const std::vector<WorkerId> ready = in_state(State::kReady);
  return seats_.empty() ? change_to(alive, ready, static_cast<std::size_t>(target_)) : seat(seats_, sitters(alive), sitters(ready));
}

bool Coordinator::as_wanted() const {
  Seats hosts;
  for (const Member& member : membership_.members) {
    hosts.push_back(member.host);
  }
  return seats_.empty() ? hosts.size() == static_cast<std::size_t>(target_) : hosts == seats_ && rates_stand();
}

bool Coordinator::rates_stand() const {
  return std::ranges::equal(membership_.members, rates_of(edges_, membership_.members.size()), {}, &Member::edge);
}

void Coordinator::answer_resize(absl::Status status, std::string text) {
  act(Answer{resize_->request, std::move(status), std::move(text)});
  resize_.reset();
}

}  // namespace maypole::elastic
