// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/coordinator.h"

#include "maypole/base/status.h"

#include <algorithm>
#include <utility>

namespace maypole::elastic {

namespace {

constexpr int kMaxFruitless = 5;                     // epochs in a row that may break without a step
constexpr std::chrono::seconds kLeaverPatience{60};  // then it is killed

std::string counted(std::size_t number, const char* noun) { return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s"); }

/// The first line in which two descriptions differ.
std::string difference(std::string_view newcomer, std::string_view run) {
  while (!newcomer.empty() || !run.empty()) {
    const std::size_t newcomer_end = std::min(newcomer.find('\n'), newcomer.size());
    const std::size_t run_end = std::min(run.find('\n'), run.size());
    const std::string_view here = newcomer.substr(0, newcomer_end);
    const std::string_view there = run.substr(0, run_end);
    if (here != there) {
      return fmt::format("it has '{}' where the run has '{}'", here, there);
    }
    newcomer.remove_prefix(std::min(newcomer_end + 1, newcomer.size()));
    run.remove_prefix(std::min(run_end + 1, run.size()));
  }
  return "";
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, base::TimePoint now)
    : options_(options),
      range_{options.min_workers, options.max_workers},
      seats_(options.seats),
      edges_(options.edges),
      target_(options.workers),
      retries_left_(options.retries),
      last_time_(now) {
  for (int i = 0; i < target_; ++i) {
    start_worker(seats_.empty() ? "" : seats_[static_cast<std::size_t>(i)], now);
  }
}

// --- looking up ---

Coordinator::Worker* Coordinator::find(WorkerId worker) {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? nullptr : &found->second;
}

std::vector<WorkerId> Coordinator::in_state(State state) const {
  std::vector<WorkerId> found;
  for (const auto& [id, worker] : workers_) {
    if (worker.state == state) {
      found.push_back(id);
    }
  }
  return found;
}

std::vector<WorkerId> Coordinator::members_alive() const {
  std::vector<WorkerId> alive;
  for (const Member& member : membership_.members) {
    const auto found = workers_.find(member.worker);
    if (found != workers_.end() && found->second.state == State::kMember) {
      alive.push_back(member.worker);
    }
  }
  return alive;
}

bool Coordinator::all_looping() const {
  return std::ranges::all_of(members_alive(), [this](WorkerId id) { return workers_.at(id).looping; });
}

int Coordinator::num_workers() const {
  return static_cast<int>(std::ranges::count_if(workers_, [](const auto& worker) { return worker.second.state != State::kLeaving; }));
}

std::vector<Action> Coordinator::take_actions() { return std::exchange(actions_, {}); }

// --- workers come and go ---

void Coordinator::set_state(Worker& worker, State state, base::TimePoint now) {
  worker.state = state;
  worker.state_since = now;
}

void Coordinator::start_worker(std::string host, base::TimePoint now) {
  const WorkerId id(next_worker_++);
  set_state(workers_[id], State::kStarting, now);
  workers_[id].host = host;
  act(StartWorker{id, std::move(host)});
}

void Coordinator::on_started(WorkerId id, std::string host, std::string rendezvous, base::TimePoint now) {
  if (Worker* worker = find(id)) {
    worker->host = std::move(host);
    worker->rendezvous = std::move(rendezvous);
  }
  advance(now);
}

void Coordinator::on_report(WorkerId id, const WorkerReport& report, base::TimePoint now) {
  Worker* worker = find(id);
  if (worker == nullptr || failed_) {
    return;
  }
  worker->heard = now;
  const bool of_this_epoch = report.epoch == membership_.epoch && worker->state == State::kMember;
  step_ = std::max(step_, report.step);
  switch (report.kind) {
    case WorkerReport::Kind::kAlive:
      return;
    case WorkerReport::Kind::kReady:
      if (worker->state != State::kStarting) {
        return;
      }
      worker->trains = report.text;
      worker->looping = membership_.epoch > 0;
      if (const std::string differs = difference(report.text, founder_trains_); worker->looping && !differs.empty()) {
        act(Send{id, {Order::Kind::kRefuse, {}, fmt::format("worker {} cannot join this run: {}", id.value(), differs)}});
        set_state(*worker, State::kLeaving, now);
        give_up_newcomer(fmt::format("worker {} was refused: {}", id.value(), differs));
        break;
      }
      set_state(*worker, State::kReady, now);
      break;
    case WorkerReport::Kind::kLooping:
      worker->looping = true;
      founder_trains_ = founder_trains_.empty() ? report.text : founder_trains_;
      break;
    case WorkerReport::Kind::kStopped:
    case WorkerReport::Kind::kFinished:
      if (!of_this_epoch) {
        return;
      }
      worker->stopped = true;
      worker->finished = report.kind == WorkerReport::Kind::kFinished;
      if (!report.text.empty()) {
        broken_ = true;
        broken_by_ = report.text;
      }
      break;
    case WorkerReport::Kind::kEntered:
      if (!of_this_epoch) {
        return;
      }
      worker->entered = true;
      stall_s_ = std::max(stall_s_, report.seconds);
      step_ = entered_step_ = report.step;  // all members enter at one; it is less than before where a checkpoint was read
      if (std::ranges::all_of(membership_.members, [this](const Member& member) {
            const Worker* each = find(member.worker);
            return each != nullptr && each->entered;
          })) {
        all_entered(now);
      }
      break;
  }
  advance(now);
}

void Coordinator::on_ended(WorkerId id, bool success, const std::string& why, base::TimePoint now) {
  Worker* worker = find(id);
  if (worker == nullptr || failed_) {
    return;
  }
  if (worker->state == State::kLeaving) {
    workers_.erase(id);
  } else if (worker->state == State::kMember && success) {
    workers_.erase(id);
    left_loop_ = finishing_ ? left_loop_ : id;
    finish(now);
  } else if (membership_.epoch == 0 && success) {
    workers_.erase(id);
    left_early_ = true;
  } else {
    lose(id, why, now);
  }
  advance(now);
}

void Coordinator::lose(WorkerId id, const std::string& why, base::TimePoint now) {
  const Worker lost = std::move(workers_.at(id));
  workers_.erase(id);
  const bool member = lost.state == State::kMember;
  if (membership_.epoch == 0 || finishing_ || (member && !(lost.looping && all_looping()))) {
    return fail(id, fmt::format("worker {} {}", id.value(), why));
  }
  ++num_failures_;
  broken_ = broken_ || member;
  broken_by_ = member ? fmt::format("worker {} {}", id.value(), why) : broken_by_;
  const std::string where = member ? "" : " before it joined";
  const std::optional<std::string> vacant_host = vacancy();
  if (!vacant_host) {  // a smaller number was asked for, and has come about this way
    say(fmt::format("worker {} {}{}; {} are wanted, and are there", id.value(), why, where, target_));
    return;
  }
  if (retries_left_ > 0) {
    --retries_left_;
    say(fmt::format("worker {} {}{}; worker {} replaces it ({} left)", id.value(), why, where, next_worker_,
                    retries_left_ == 1 ? "1 retry" : fmt::format("{} retries", retries_left_)));
    start_worker(*vacant_host, now);
    return;
  }
  const std::string what = fmt::format("worker {} {}{}", id.value(), why, where);
  if (member && !resize_) {
    settle_for_less();
    say(fmt::format("{}; no retries are left, {} {} on", what, counted(static_cast<std::size_t>(target_), "worker"),
                    target_ == 1 ? "goes" : "go"));
  } else {
    give_up_newcomer(what);
  }
}

void Coordinator::give_up_newcomer(const std::string& why) {
  settle_for_less();
  if (resize_) {
    answer_resize(
        base::error(absl::StatusCode::kAborted, "{}; {} of the run go on", why, counted(static_cast<std::size_t>(target_), "worker")), "");
  } else {
    say(why);
  }
}

void Coordinator::fail(WorkerId id, std::string text) {
  failed_ = true;
  if (resize_) {
    answer_resize(base::error(absl::StatusCode::kAborted, "the run failed: {}", text), "");
  }
  act(Fail{id, std::move(text)});
}

// --- time ---

std::optional<base::TimePoint> Coordinator::next_due() const {
  if (failed_ || workers_.empty()) {
    return std::nullopt;
  }
  return last_time_ + options_.silence / 4;
}

void Coordinator::check_silence(base::TimePoint now) {
  // Where this process itself stood still, the silence is its own.
  const bool stood_still = now - last_time_ > options_.silence / 2;
  last_time_ = now;
  std::vector<std::pair<WorkerId, std::string>> lost;
  for (auto& [id, worker] : workers_) {
    if (stood_still && worker.heard) {
      worker.heard = now;
    }
    const bool starts_late = membership_.epoch > 0 && worker.state == State::kStarting && now - worker.state_since > options_.start_timeout;
    const bool leaves_late = worker.state == State::kLeaving && now - worker.state_since > kLeaverPatience;
    if (worker.heard && now - *worker.heard > options_.silence) {
      lost.emplace_back(id, fmt::format("gave no sign of life for {}", base::format_seconds(base::to_seconds(now - *worker.heard))));
    } else if (starts_late || leaves_late) {
      lost.emplace_back(id, fmt::format("did not {} within {}", starts_late ? "come to its loop" : "end",
                                        base::format_seconds(base::to_seconds(now - worker.state_since))));
    }
  }
  for (const auto& [id, why] : lost) {
    act(KillWorker{id});
    if (find(id)->state == State::kLeaving) {
      workers_.erase(id);
    } else {
      lose(id, why, now);
    }
    if (failed_) {
      return;
    }
  }
}

void Coordinator::on_time(base::TimePoint now) {
  if (!failed_) {
    check_silence(now);
    advance(now);
  }
}

// --- epochs ---

bool Coordinator::newcomers_may_enter(base::TimePoint now) const {
  const std::vector<WorkerId> ready = in_state(State::kReady);
  return !ready.empty() && (in_state(State::kStarting).empty() || std::ranges::any_of(ready, [&](WorkerId id) {
                              return now - workers_.at(id).state_since >= options_.joining_window;
                            }));
}

bool Coordinator::wants_change(base::TimePoint now) const {
  if (!seats_.empty()) {
    const bool all_are_there =
        in_state(State::kStarting).empty() || newcomers_may_enter(now) || (resize_ && now - resize_->since >= options_.joining_window);
    return all_are_there && (next_change().members != members_alive() || !rates_stand());
  }
  const std::size_t alive = members_alive().size();
  const auto target = static_cast<std::size_t>(target_);
  return alive > target || (alive < target && newcomers_may_enter(now));
}

void Coordinator::advance(base::TimePoint now) {
  if (failed_) {
    return;
  }
  const std::vector<WorkerId> ready = in_state(State::kReady);
  if (membership_.epoch == 0) {
    if (left_early_ && !ready.empty()) {
      return fail(WorkerId(), "a worker ended before training began, while others wait for it in maypole.init()");
    }
    if (ready.size() == static_cast<std::size_t>(target_) &&
        std::ranges::none_of(ready, [this](WorkerId id) { return workers_.at(id).rendezvous.empty(); })) {
      announce(now);
    }
    return;
  }
  const std::vector<WorkerId> alive = members_alive();
  if (finishing_) {
    return see_off(alive);
  }
  if (alive.empty()) {
    if (!options_.checkpoints || (ready.empty() && in_state(State::kStarting).empty())) {
      return fail(WorkerId(), fmt::format("all workers are lost, and {}; the last: {}",
                                          options_.checkpoints ? "no retries are left" : "with them what they had learned", broken_by_));
    }
    if (!newcomers_may_enter(now)) {
      return;
    }
  }
  if (resize_ && is_in_effect(alive)) {  // what was under way when it was asked for has come about without a change
    ++num_resizes_;
    answer_resize(absl::OkStatus(), fmt::format("{} -> {}, which are there", resize_->from, counted(alive.size(), "worker")));
  }
  if (!std::ranges::all_of(alive, [this](WorkerId id) { return workers_.at(id).stopped; })) {
    if (!broken_ && stop_sent_ != membership_.epoch && all_looping() && wants_change(now)) {
      stop_sent_ = membership_.epoch;
      for (const WorkerId id : alive) {
        act(Send{id, {Order::Kind::kStop, {membership_.epoch, {}}, ""}});
      }
    }
    return;
  }
  if (!broken_ && std::ranges::all_of(alive, [this](WorkerId id) { return workers_.at(id).finished; })) {
    finish(now);
    return see_off(alive);
  }
  const std::size_t available = std::min(alive.size() + ready.size(), static_cast<std::size_t>(target_));
  if (available < static_cast<std::size_t>(range_.min)) {
    if (in_state(State::kStarting).empty()) {
      return fail(WorkerId(), fmt::format("{} left, at least {} are needed, and no retries are left; the last failure: {}",
                                          counted(available, "worker") + (available == 1 ? " is" : " are"), range_.min, broken_by_));
    }
    if (!std::exchange(said_waiting_, true)) {
      say(fmt::format("training waits: {} of at least {} workers live, and a replacement is starting", available, range_.min));
    }
    return;
  }
  announce(now);
}

void Coordinator::see_off(const std::vector<WorkerId>& alive) {
  for (const WorkerId id : alive) {
    Worker& worker = workers_.at(id);
    if (worker.stopped && !worker.finished) {
      return fail(left_loop_,
                  fmt::format("worker {} left the loop and ended while others trained: leave it on all workers after the same step",
                              left_loop_.value()));
    }
    if (std::exchange(worker.finished, false)) {
      worker.stopped = false;
      act(Send{id, {Order::Kind::kEnd, {membership_.epoch, {}}, ""}});
    }
  }
}

bool Coordinator::is_in_effect(const std::vector<WorkerId>& alive) const {
  const bool stands = !broken_ && stop_sent_ != membership_.epoch && alive.size() == membership_.members.size();
  return stands && as_wanted() && std::ranges::all_of(alive, [this](WorkerId id) { return workers_.at(id).entered; });
}

void Coordinator::announce(base::TimePoint now) {
  const bool from_checkpoint = membership_.epoch > 0 && members_alive().empty();  // the retries limit how often
  fruitless_ = broken_ && step_ <= entered_step_ && membership_.epoch > 0 && !from_checkpoint ? fruitless_ + 1 : 0;
  if (fruitless_ > kMaxFruitless) {
    return fail(WorkerId(),
                fmt::format("the ring broke {} times in a row before a step was done; the last time: {}", fruitless_, broken_by_));
  }
  if (from_checkpoint) {
    say(fmt::format("all workers are lost; {} from the last checkpoint",
                    in_state(State::kReady).size() == 1 ? "a new one goes on" : "new ones go on"));
  }
  const Change change = next_change();
  const EdgeRates rates = rates_of(edges_, change.members.size());
  Membership next{membership_.epoch + 1, {}};
  for (const WorkerId id : change.members) {
    Worker& worker = workers_.at(id);
    next.members.push_back({id, worker.host, worker.rendezvous, rates[next.members.size()]});
    worker.stopped = worker.finished = worker.entered = false;
    set_state(worker, State::kMember, now);
  }
  membership_ = next;
  broken_ = said_waiting_ = false;
  entered_step_ = step_;
  stall_s_ = 0;
  for (const WorkerId id : change.members) {
    act(Send{id, {Order::Kind::kAnnounce, membership_, ""}});
  }
  for (const WorkerId id : change.leavers) {
    set_state(workers_.at(id), State::kLeaving, now);
    act(Send{id, {Order::Kind::kAnnounce, membership_, ""}});
  }
}

void Coordinator::all_entered(base::TimePoint now) {
  const std::size_t size = membership_.members.size();
  const std::string where =
      fmt::format("{} at step {}, after {} without a step", counted(size, "worker"), entered_step_, base::format_seconds(stall_s_));
  if (membership_.epoch > 1) {
    say(fmt::format("epoch {}: {}", membership_.epoch, where));
  }
  if (resize_ && as_wanted()) {
    ++num_resizes_;
    answer_resize(absl::OkStatus(), fmt::format("{} -> {}, {} after it was asked for", resize_->from, where,
                                                base::format_seconds(base::to_seconds(now - resize_->since))));
  }
}

void Coordinator::finish(base::TimePoint now) {
  finishing_ = true;
  for (const State state : {State::kStarting, State::kReady}) {
    for (const WorkerId id : in_state(state)) {
      set_state(workers_.at(id), State::kLeaving, now);
      act(KillWorker{id});
    }
  }
  if (resize_) {
    answer_resize(base::error(absl::StatusCode::kUnavailable, "training ended first"), "");
  }
}

}  // namespace maypole::elastic
