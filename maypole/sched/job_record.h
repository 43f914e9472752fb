// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the controller knows of one job, and how a slot is credited to it (the accounting rules, `docs/scheduler.md`).

#include "maypole/base/strong_id.h"
#include "maypole/model/job.h"
#include "maypole/sched/slot_problem.h"

#include <optional>
#include <string_view>

namespace maypole::sched {

enum class JobPhase { kQueued, kRunning, kSuspended, kFinished, kCancelled };

[[nodiscard]] std::string_view name_of(JobPhase phase);

/// Invariant: `current` is set exactly in phase kRunning; `ended_s` exactly in kFinished and kCancelled.
struct JobRecord {
  model::Job job;
  JobPhase phase = JobPhase::kQueued;
  double progress = 0;
  double late_progress = 0;  // made in slots that began at or after the utility's deadline
  double worker_slots = 0;   // of the budget
  double attained_s = 0;     // accelerator-seconds
  double held_s = 0;         // seconds in which it had workers
  double last_ran_s = 0;     // end of the last slot in which it had workers; its arrival before the first
  std::optional<double> started_s;
  std::optional<double> ended_s;
  std::optional<model::Embedding> current;
  bool resized = false;  // the ring of this slot differs from that of the last one, in which the job ran too
  int resizes = 0;
  int preemptions = 0;
  std::optional<double> reported;  // progress as the job itself counts it; taken in place of the model's at the slot's end

  [[nodiscard]] bool active() const { return phase != JobPhase::kFinished && phase != JobPhase::kCancelled; }
  [[nodiscard]] double utility() const { return job.value(progress, late_progress); }
};

/// How a policy sees the record in the slot that starts at `start_s`. Borrows from it.
[[nodiscard]] ActiveJob view_of(const JobRecord& record, model::JobId id, double start_s, double remaining_slots);

/// The slot that is credited.
struct SlotTime {
  double start_s = 0;
  double slot_s = 60;
  double share = 1;  // of the slot that has passed, in [0, 1]
};

/// What a job with workers gained in a slot.
struct Credit {
  double utility = 0;
  bool ended = false;  // its work is done, or what is left of its budget is less than min_workers
  double used_s = 0;   // seconds of the slot in which it held its workers: to its end, where it ended within the slot
};

/// Adds the passed share of a slot to a running record: progress by its model (or as reported), at most its work; worker-slots, accelerator
/// and wall seconds up to the moment when its work is done. A changed ring makes no progress for resize_s at the slot's start.
/// `record.current` must be set.
[[nodiscard]] Credit credit(JobRecord& record, const SlotTime& time, model::ResourceId accelerator);

}  // namespace maypole::sched
