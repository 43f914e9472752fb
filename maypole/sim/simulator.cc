// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/simulator.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/model/routes.h"
#include "maypole/sim/offered_load.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace maypole::sim {

namespace {

using model::JobId;

// Decisions without any placement, while nothing can change any more, after which the run is stuck.
constexpr std::int64_t kStuckDecisions = 1000;
constexpr std::size_t kViolationsKept = 10;
constexpr std::int64_t kSlotsBetweenReports = 64;
// A run remembers each slot, so it may not have any number of them: this many are 19 years of minutes.
constexpr std::int64_t kMostSlots = 10'000'000;

/// Slots after which an open run ends in any case: all arrivals, then four times what the jobs would take one after the other, and all
/// the time for which they may wait for few racks.
std::int64_t last_slot(const model::Instance& instance) {
  if (instance.slots > 0) {
    return instance.slots;
  }
  const double last_arrival_s = instance.jobs.empty() ? 0 : instance.jobs.back().arrival_s;
  double patience_s = 0;
  for (const model::Job& job : instance.jobs) {
    patience_s += job.max_racks > 0 ? job.max_racks_s : 0;
  }
  const double slots = (last_arrival_s + 4 * offered_load(instance).alone_s + patience_s) / instance.slot_s;
  return static_cast<std::int64_t>(std::min(slots, 1e15)) + 2 * kStuckDecisions;
}

class Run {
 public:
  Run(const model::Instance& instance, std::unique_ptr<sched::Policy> policy, const SimulationOptions& options, const base::Clock& clock)
      : instance_(instance),
        options_(options),
        controller_(instance.cluster, std::move(policy), {instance.slot_s, instance.slots, instance.seed, options.refuse_violations},
                    clock),
        last_slot_(last_slot(instance)) {
    result_.policy = controller_.policy().name();
    result_.slot_s = instance.slot_s;
    result_.timelines.resize(instance.jobs.size());
    active_before_.resize(instance.jobs.size(), 0);
    result_.jobs.resize(instance.jobs.size());
    for (std::size_t i = 0; i < instance.jobs.size(); ++i) {
      utility_ += instance.jobs[i].value(0);
    }
  }

  absl::StatusOr<Simulation> run() {
    std::int64_t slot = 0;
    while (slot < last_slot_ && !over() && std::ssize(result_.slots) < kMostSlots) {
      MAYPOLE_RETURN_IF_ERROR(admit(slot));
      if (controller_.active().empty()) {
        const std::int64_t next = std::min(next_arrival_slot(), last_slot_);
        idle(slot, next);
        slot = next;
        continue;
      }
      if (options_.before_decision) {
        options_.before_decision(controller_.pose(slot));
      }
      bool changed = take(controller_.decide(slot), true);
      ++slot;
      const std::int64_t arrival = next_arrival_slot();
      while (options_.skip_unchanged && !changed && slot < arrival && slot < last_slot_ && controller_.repeats_left() > 0 &&
             std::ssize(result_.slots) < kMostSlots) {
        changed = take(controller_.repeat(slot), false);
        ++slot;
      }
      if (stuck()) {
        break;
      }
    }
    if (instance_.slots > 0) {
      idle(slot, last_slot_);
      slot = last_slot_;
    } else if (!over() && result_.stopped.empty()) {
      result_.stopped = fmt::format("{} jobs had not ended after {} slots", instance_.jobs.size() - num_ended_, slot);
    }
    result_.num_slots = slot;
    finish(slot);
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool over() const { return next_job_ == instance_.jobs.size() && controller_.active().empty(); }

  [[nodiscard]] std::int64_t next_arrival_slot() const {
    if (next_job_ == instance_.jobs.size()) {
      return std::numeric_limits<std::int64_t>::max();
    }
    return static_cast<std::int64_t>(std::ceil(instance_.jobs[next_job_].arrival_s / instance_.slot_s - 1e-9));
  }

  absl::Status admit(std::int64_t slot) {
    while (next_job_ < instance_.jobs.size() && next_arrival_slot() <= slot) {
      active_before_[next_job_] = active_slots_;
      MAYPOLE_RETURN_IF_ERROR(controller_.submit(instance_.jobs[next_job_++]).status());
    }
    return absl::OkStatus();
  }

  /// Slots [begin, end) in which no job is there.
  void idle(std::int64_t begin, std::int64_t end) {
    if (options_.on_slot) {
      for (std::int64_t slot = begin; slot < end; ++slot) {
        sched::SlotOutcome outcome;
        outcome.decision.slot = slot;
        options_.on_slot(outcome);
      }
    }
  }

  /// Records a decided slot and credits it; returns whether a job ended.
  bool take(const sched::SlotOutcome& outcome, bool decided) {
    const sched::Decision& decision = outcome.decision;
    if (options_.on_slot) {
      options_.on_slot(outcome);
    }
    SlotSample sample;
    sample.slot = decision.slot;
    sample.active = static_cast<int>(controller_.active().size());
    sample.embedded = static_cast<int>(decision.placements.size());
    sample.decided = decided;
    sample.seconds = decision.seconds;
    sample.gain = decision.utility;
    sample.bound_lp = decision.bound_lp;
    sample.gap = decision.gap;
    const model::ResourceId accelerator = instance_.cluster.accelerator();
    for (const sched::Placement& placement : decision.placements) {
      const model::Embedding& embedding = placement.embedding;
      sample.accelerators += embedding.workers() * instance_.jobs[placement.job.index()].demand[accelerator];
      sample.rack_crossings += model::rack_crossings(instance_.cluster, embedding.ring);
      for (const std::vector<model::LinkId>& edge : embedding.edges) {
        sample.reserved_bytes_per_s += static_cast<double>(edge.size()) * embedding.bandwidth.bytes_per_second;
      }
      std::vector<WorkerSpan>& spans = result_.timelines[placement.job.index()];
      if (!spans.empty() && spans.back().end == decision.slot && spans.back().workers == embedding.workers()) {
        ++spans.back().end;
      } else {
        spans.push_back({decision.slot, decision.slot + 1, embedding.workers()});
      }
    }
    utility_ += decision.utility;
    sample.utility = utility_;
    active_slots_ += sample.active;
    count(outcome);
    without_placement_ = decision.placements.empty() ? without_placement_ + 1 : 0;
    const std::vector<sched::EndedJob> ended = controller_.end_slot();
    for (const sched::EndedJob& job : ended) {
      record_end(job.job, decision.slot + 1);
    }
    num_ended_ += ended.size();
    result_.slots.push_back(sample);
    if (options_.on_progress && decision.slot % kSlotsBetweenReports == 0) {
      options_.on_progress(decision.slot + 1, num_ended_);
    }
    return !ended.empty();
  }

  void count(const sched::SlotOutcome& outcome) {
    result_.limited += outcome.decision.limited ? 1 : 0;
    result_.violations += static_cast<std::int64_t>(outcome.violations.size());
    for (const std::string& violation : outcome.violations) {
      if (result_.first_violations.size() < kViolationsKept) {
        result_.first_violations.push_back(fmt::format("slot {}: {}", outcome.decision.slot, violation));
      }
    }
  }

  /// Whether a job may come to span more racks by waiting on: then slots without placement do not last for ever.
  [[nodiscard]] bool a_rack_limit_ends() const {
    const double start_s = static_cast<double>(result_.slots.back().slot) * instance_.slot_s;
    return std::ranges::any_of(controller_.active(), [&](JobId id) {
      const sched::JobRecord& record = controller_.record(id);
      return record.job.max_racks > 0 && start_s - record.last_ran_s < record.job.max_racks_s;
    });
  }

  bool stuck() {
    if (without_placement_ < kStuckDecisions || instance_.slots > 0 || next_job_ < instance_.jobs.size() || a_rack_limit_ends()) {
      return false;
    }
    result_.stopped = fmt::format("{} jobs never get workers from {}, '{}' the first of them", controller_.active().size(), result_.policy,
                                  controller_.record(controller_.active().front()).job.id);
    return true;
  }

  void record_end(JobId id, std::int64_t slots_passed) {
    const auto there = std::max<std::int64_t>(
        1, slots_passed - static_cast<std::int64_t>(std::ceil(instance_.jobs[id.index()].arrival_s / instance_.slot_s - 1e-9)));
    result_.jobs[id.index()].mean_active = (active_slots_ - active_before_[id.index()]) / static_cast<double>(there);
  }

  void finish(std::int64_t slots_passed) {
    for (std::size_t i = 0; i < instance_.jobs.size(); ++i) {
      JobOutcome& outcome = result_.jobs[i];
      outcome.id = instance_.jobs[i].id;
      outcome.arrival_s = instance_.jobs[i].arrival_s;
      outcome.utility = instance_.jobs[i].value(0);
      if (i >= controller_.num_jobs()) {
        continue;  // it had not arrived
      }
      const auto id = JobId::from_index(i);
      const sched::JobRecord& record = controller_.record(id);
      if (record.active()) {
        record_end(id, slots_passed);
      }
      outcome.started_s = record.started_s;
      outcome.ended_s = record.ended_s;
      outcome.progress = record.progress;
      outcome.utility = record.utility();
      outcome.attained_s = record.attained_s;
      outcome.resizes = record.resizes;
      outcome.preemptions = record.preemptions;
    }
  }

  const model::Instance& instance_;
  const SimulationOptions& options_;
  sched::Controller controller_;
  std::int64_t last_slot_;
  Simulation result_;
  std::size_t next_job_ = 0;  // in order of arrival; JobId = position, as jobs are submitted in that order
  std::size_t num_ended_ = 0;
  std::int64_t without_placement_ = 0;
  double utility_ = 0;
  double active_slots_ = 0;            // active jobs, summed over the slots so far
  std::vector<double> active_before_;  // [job]: that sum when it arrived
};

/// Refuses a run that is too long to end, whatever the policy.
absl::Status check_length(const model::Instance& instance) {
  constexpr const char* kRemedy = "a run has at most 10 million: give longer slots, or correct it";
  if (instance.slots > kMostSlots) {
    return base::error(absl::StatusCode::kInvalidArgument, "the horizon has {} slots, {}", instance.slots, kRemedy);
  }
  for (const model::Job& job : instance.jobs) {
    const double end_s = job.arrival_s + fastest_s(job, instance);
    if (instance.slots == 0 && end_s / instance.slot_s > static_cast<double>(kMostSlots)) {
      return base::error(absl::StatusCode::kInvalidArgument, "job '{}' ends after {:.3g} slots of {:g} s at the earliest, {}", job.id,
                         end_s / instance.slot_s, instance.slot_s, kRemedy);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Simulation> simulate(const model::Instance& instance, std::unique_ptr<sched::Policy> policy,
                                    const SimulationOptions& options, const base::Clock& clock) {
  MAYPOLE_RETURN_IF_ERROR(model::check_instance(instance));
  for (std::size_t i = 1; i < instance.jobs.size(); ++i) {
    if (instance.jobs[i].arrival_s < instance.jobs[i - 1].arrival_s) {
      return base::error(absl::StatusCode::kInvalidArgument, "job '{}' arrives before '{}', which stands in front of it: sort by arrival",
                         instance.jobs[i].id, instance.jobs[i - 1].id);
    }
  }
  if (instance.slots == 0) {
    for (const model::Job& job : instance.jobs) {
      if (!job.work && !job.budget) {
        return base::error(absl::StatusCode::kInvalidArgument,
                           "job '{}' has neither work nor budget, so the run would never end: give it one, or the run a number of slots",
                           job.id);
      }
    }
  }
  MAYPOLE_RETURN_IF_ERROR(check_length(instance));
  Run run(instance, std::move(policy), options, clock);
  return run.run();
}

}  // namespace maypole::sim
