// SPDX-License-Identifier: Apache-2.0

// check_run: the state of every job, counted from the decisions.

#include "maypole/sched/schedule_checker.h"

#include <fmt/format.h>

#include <algorithm>

namespace maypole::sched {

namespace {

using model::Job;
using model::JobId;

// Progress this near to the work is all of it: it was added up slot by slot.
constexpr double kEndTolerance = 1e-12;

bool is_late(const Job& job, double start_s) {
  return job.utility.kind == model::UtilityKind::kDeadline && start_s >= job.utility.deadline_s;
}

class RunCheck {
 public:
  explicit RunCheck(const model::Instance& instance) : instance_(instance) {
    for (std::size_t i = 0; i < instance.jobs.size(); ++i) {
      ActiveJob& state = states_.emplace_back();
      state.id = JobId::from_index(i);
      state.job = &instance.jobs[i];
      idle_since_s_.push_back(instance.jobs[i].arrival_s);
    }
    currents_.resize(states_.size(), nullptr);
  }

  std::vector<std::string> run(std::span<const Decision> decisions) {
    std::int64_t expected = 0;
    for (const Decision& decision : decisions) {
      if (decision.slot != expected) {
        violations_.push_back(fmt::format("slot {} comes where slot {} is due", decision.slot, expected));
      }
      expected = decision.slot + 1;
      visit(decision);
    }
    if (instance_.slots > 0 && expected != instance_.slots) {
      violations_.push_back(fmt::format("the decisions end after {} slots, the horizon has {}", expected, instance_.slots));
    }
    return std::move(violations_);
  }

 private:
  [[nodiscard]] bool has_ended(const ActiveJob& state) const {
    const bool worked = state.job->work && *state.job->work - state.progress <= kEndTolerance * *state.job->work;
    const bool spent = state.job->budget && state.worker_slots >= *state.job->budget * (1 + kEndTolerance);
    return worked || spent;
  }

  void visit(const Decision& decision) {
    const double start_s = static_cast<double>(decision.slot) * instance_.slot_s;
    for (const Placement& placement : decision.placements) {
      if (placement.job.valid() && placement.job.index() < states_.size()) {
        ActiveJob& state = states_[placement.job.index()];
        state.current = currents_[placement.job.index()];
        state.waiting_s = state.running() ? 0 : std::max(0.0, start_s - idle_since_s_[placement.job.index()]);
      }
    }
    CheckedSlot slot;
    slot.cluster = &instance_.cluster;
    slot.slot = decision.slot;
    slot.slot_s = instance_.slot_s;
    slot.find = [&](JobId id) -> const ActiveJob* {
      const bool known = id.valid() && id.index() < states_.size();
      return known && !has_ended(states_[id.index()]) ? &states_[id.index()] : nullptr;
    };
    slot.why_not = [&](JobId id) {
      const bool known = id.valid() && id.index() < states_.size();
      return known ? fmt::format("job {} runs after its end", instance_.jobs[id.index()].id)
                   : fmt::format("job number {} runs, the instance has {}", id.value(), instance_.jobs.size());
    };
    for (std::string& violation : check_slot(slot, decision)) {
      violations_.push_back(std::move(violation));
    }
    advance(decision, start_s);
  }

  void advance(const Decision& decision, double start_s) {
    for (const std::size_t i : running_) {
      currents_[i] = nullptr;
    }
    running_.clear();
    for (const Placement& placement : decision.placements) {
      if (!placement.job.valid() || placement.job.index() >= states_.size() || placement.embedding.ring.empty()) {
        continue;
      }
      const std::size_t i = placement.job.index();
      ActiveJob& state = states_[i];
      const double progress = checked_progress(state, placement.embedding, instance_.slot_s);
      state.progress += progress;
      state.late_progress += is_late(*state.job, start_s) ? progress : 0;
      state.worker_slots += static_cast<double>(placement.embedding.ring.size());
      idle_since_s_[i] = start_s + instance_.slot_s;
      currents_[i] = &placement.embedding;
      running_.push_back(i);
    }
  }

  const model::Instance& instance_;
  std::vector<ActiveJob> states_;                  // [job]
  std::vector<const model::Embedding*> currents_;  // [job]: the last slot's
  std::vector<std::size_t> running_;               // jobs with a current ring
  std::vector<double> idle_since_s_;               // [job]: arrival, or the end of the last slot in which it ran
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> check_run(const model::Instance& instance, std::span<const Decision> decisions) {
  return RunCheck(instance).run(decisions);
}

}  // namespace maypole::sched
