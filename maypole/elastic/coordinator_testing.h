// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/elastic/coordinator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace maypole::elastic {

/// Carries the coordinator's actions out as a launcher and well-behaved workers would, in virtual time.
class ScriptedRun {
 public:
  explicit ScriptedRun(const CoordinatorOptions& options) : coordinator_(options, now_) { settle(); }

  /// Carries out what is to be done, until nothing is.
  void settle() {
    for (std::vector<Action> actions = coordinator_.take_actions(); !actions.empty(); actions = coordinator_.take_actions()) {
      for (const Action& action : actions) {
        std::visit([this](const auto& each) { carry_out(each); }, action);
      }
    }
  }

  void report(int worker, WorkerReport::Kind kind, const std::string& text = "") {
    coordinator_.on_report(WorkerId(worker), {kind, epoch_of_[worker], step_, 0.1, text}, now_);
    settle();
  }
  void ready(int worker, const std::string& trains = "model") { report(worker, WorkerReport::Kind::kReady, epoch() == 0 ? "" : trains); }
  /// Founders come, meet, and begin their loops.
  void begin(int workers) {
    for (int i = 0; i < workers; ++i) {
      ready(i);
    }
    enter();
    for (int i = 0; i < workers; ++i) {
      report(i, WorkerReport::Kind::kLooping, "model");
    }
  }
  /// All members of the announced epoch form their ring.
  void enter() {
    for (const int worker : members()) {
      report(worker, WorkerReport::Kind::kEntered);
    }
  }
  /// All members that live stop; `reason` as after a failure.
  void stop(const std::string& reason = "") {
    ++step_;
    for (const int worker : members()) {
      if (!ended_.contains(worker)) {
        report(worker, WorkerReport::Kind::kStopped, reason);
      }
    }
  }
  void end(int worker, bool success = false) {
    ended_.insert(worker);
    coordinator_.on_ended(WorkerId(worker), success, success ? "exited with code 0" : "was killed by SIGKILL", now_);
    settle();
  }
  void resize(int min, int max) {
    coordinator_.on_resize(++request_, {min, max}, now_);
    settle();
  }
  void resize(int size) { resize(size, size); }
  void pass(base::Nanoseconds time, const std::set<int>& silent = {}) {
    for (base::Nanoseconds passed{}; passed < time; passed += std::chrono::milliseconds(250)) {
      now_ += std::chrono::milliseconds(250);
      for (const int worker : started_) {
        if (!silent.contains(worker) && !ended_.contains(worker)) {
          report(worker, WorkerReport::Kind::kAlive);
        }
      }
      coordinator_.on_time(now_);
      settle();
    }
  }
  void stand_still(base::Nanoseconds time) {
    now_ += time;
    coordinator_.on_time(now_);
    settle();
  }

  [[nodiscard]] std::vector<int> members() const {
    std::vector<int> numbers;
    for (const Member& member : coordinator_.membership().members) {
      numbers.push_back(member.worker.value());
    }
    return numbers;
  }
  [[nodiscard]] std::uint32_t epoch() const { return coordinator_.membership().epoch; }
  [[nodiscard]] std::string last_said() const { return said_.empty() ? "" : said_.back(); }

  base::TimePoint now_{};
  std::uint64_t step_ = 0;
  std::uint64_t request_ = 0;
  std::map<int, std::uint32_t> epoch_of_;
  std::set<int> started_;
  std::set<int> ended_;
  std::vector<int> asked_to_stop_;
  std::vector<int> killed_;
  std::vector<int> told_to_leave_;
  std::vector<int> told_to_end_;
  std::map<int, std::string> refused_;
  std::vector<std::string> said_;
  std::vector<absl::Status> answers_;
  std::optional<std::string> failure_;
  std::set<std::uint32_t> epochs_;
  Coordinator coordinator_;

 private:
  void carry_out(const StartWorker& start) {
    EXPECT_TRUE(started_.insert(start.worker.value()).second) << "worker numbers are never given twice";
    coordinator_.on_started(start.worker, "host", "host:1", now_);
  }
  void carry_out(const KillWorker& kill) {
    killed_.push_back(kill.worker.value());
    coordinator_.on_ended(kill.worker, false, "was killed by SIGKILL", now_);
  }
  void carry_out(const Send& send) {
    const int worker = send.worker.value();
    const Membership& membership = send.order.membership;
    switch (send.order.kind) {
      case Order::Kind::kAnnounce:
        EXPECT_GT(membership.epoch, epoch_of_[worker]) << "epochs only go up";
        epoch_of_[worker] = membership.epoch;
        if (!membership.rank_of(send.worker)) {
          told_to_leave_.push_back(worker);
        }
        break;
      case Order::Kind::kStop:
        asked_to_stop_.push_back(worker);
        break;
      case Order::Kind::kEnd:
        told_to_end_.push_back(worker);
        break;
      case Order::Kind::kRefuse:
        refused_[worker] = send.order.text;
        break;
    }
  }
  void carry_out(const Say& say) { said_.push_back(say.text); }
  void carry_out(const Fail& fail) { failure_ = fail.text; }
  void carry_out(const Answer& answer) { answers_.push_back(answer.status); }
};

inline CoordinatorOptions options(int min, int workers, int max, int retries = 0) {
  return {.min_workers = min, .max_workers = max, .workers = workers, .retries = retries};
}

}  // namespace maypole::elastic
