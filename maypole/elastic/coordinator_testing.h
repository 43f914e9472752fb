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
  explicit ScriptedRun(const CoordinatorOptions& options) : coordinator(options, now) { settle(); }

  /// Carries out what is to be done, until nothing is.
  void settle() {
    for (std::vector<Action> actions = coordinator.take_actions(); !actions.empty(); actions = coordinator.take_actions()) {
      for (const Action& action : actions) {
        std::visit([this](const auto& each) { carry_out(each); }, action);
      }
    }
  }

  void report(int worker, WorkerReport::Kind kind, const std::string& text = "") {
    coordinator.on_report(WorkerId(worker), {kind, epoch_of[worker], step, 0.1, text}, now);
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
    ++step;
    for (const int worker : members()) {
      if (!ended.contains(worker)) {
        report(worker, WorkerReport::Kind::kStopped, reason);
      }
    }
  }
  void end(int worker, bool success = false) {
    ended.insert(worker);
    coordinator.on_ended(WorkerId(worker), success, success ? "exited with code 0" : "was killed by SIGKILL", now);
    settle();
  }
  void resize(int min, int max) {
    coordinator.on_resize(++request, {min, max}, now);
    settle();
  }
  void resize(int size) { resize(size, size); }
  void seats(Seats wanted, EdgeRates edges = {}) {
    coordinator.on_seats(++request, std::move(wanted), now, std::move(edges));
    settle();
  }
  void pass(base::Nanoseconds time, const std::set<int>& silent = {}) {
    for (base::Nanoseconds passed{}; passed < time; passed += std::chrono::milliseconds(250)) {
      now += std::chrono::milliseconds(250);
      for (const int worker : started) {
        if (!silent.contains(worker) && !ended.contains(worker)) {
          report(worker, WorkerReport::Kind::kAlive);
        }
      }
      coordinator.on_time(now);
      settle();
    }
  }
  void stand_still(base::Nanoseconds time) {
    now += time;
    coordinator.on_time(now);
    settle();
  }

  [[nodiscard]] std::vector<int> members() const {
    std::vector<int> numbers;
    for (const Member& member : coordinator.membership().members) {
      numbers.push_back(member.worker.value());
    }
    return numbers;
  }
  [[nodiscard]] std::uint32_t epoch() const { return coordinator.membership().epoch; }
  [[nodiscard]] std::string last_said() const { return said.empty() ? "" : said.back(); }

  base::TimePoint now{};
  std::uint64_t step = 0;
  std::uint64_t request = 0;
  std::map<int, std::uint32_t> epoch_of;
  std::set<int> started;
  std::map<int, std::string> host_of;
  std::set<int> ended;
  std::vector<int> asked_to_stop;
  std::vector<int> killed;
  std::vector<int> told_to_leave;
  std::vector<int> told_to_end;
  std::map<int, std::string> refused;
  std::vector<std::string> said;
  std::vector<absl::Status> answers;
  std::optional<std::string> failure;
  std::set<std::uint32_t> epochs;
  Coordinator coordinator;

 private:
  void carry_out(const StartWorker& start) {
    EXPECT_TRUE(started.insert(start.worker.value()).second) << "worker numbers are never given twice";
    host_of[start.worker.value()] = start.host;
    coordinator.on_started(start.worker, start.host.empty() ? "host" : start.host, "host:1", now);
  }
  void carry_out(const KillWorker& kill) {
    killed.push_back(kill.worker.value());
    coordinator.on_ended(kill.worker, false, "was killed by SIGKILL", now);
  }
  void carry_out(const Send& send) {
    const int worker = send.worker.value();
    const Membership& membership = send.order.membership;
    switch (send.order.kind) {
      case Order::Kind::kAnnounce:
        EXPECT_GT(membership.epoch, epoch_of[worker]) << "epochs only go up";
        epoch_of[worker] = membership.epoch;
        if (!membership.rank_of(send.worker)) {
          told_to_leave.push_back(worker);
        }
        break;
      case Order::Kind::kStop:
        asked_to_stop.push_back(worker);
        break;
      case Order::Kind::kEnd:
        told_to_end.push_back(worker);
        break;
      case Order::Kind::kRefuse:
        refused[worker] = send.order.text;
        break;
    }
  }
  void carry_out(const Say& say) { said.push_back(say.text); }
  void carry_out(const Fail& fail) { failure = fail.text; }
  void carry_out(const Answer& answer) { answers.push_back(answer.status); }
};

inline CoordinatorOptions options(int min, int workers, int max, int retries = 0) {
  return {.min_workers = min, .max_workers = max, .workers = workers, .retries = retries};
}

}  // namespace maypole::elastic
