// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/job_record.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <limits>

namespace maypole::sched {

namespace {

// Work counts as done when this share of it is missing: sums of progress are off in their last bits.
constexpr double kWorkTolerance = 1e-9;

}  // namespace

std::string_view name_of(JobPhase phase) {
  switch (phase) {
    case JobPhase::kQueued:
      return "queued";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kSuspended:
      return "suspended";
    case JobPhase::kFinished:
      return "finished";
    case JobPhase::kCancelled:
      return "cancelled";
  }
  return "?";
}

ActiveJob view_of(const JobRecord& record, model::JobId id, double start_s, double remaining_slots) {
  ActiveJob view;
  view.id = id;
  view.job = &record.job;
  view.progress = record.progress;
  view.late_progress = record.late_progress;
  view.worker_slots = record.worker_slots;
  view.attained_s = record.attained_s;
  view.remaining_slots = remaining_slots;
  view.waiting_s = std::max(0.0, start_s - record.last_ran_s);
  view.current = record.current ? &*record.current : nullptr;
  return view;
}

Credit credit(JobRecord& record, const SlotTime& time, model::ResourceId accelerator) {
  MAYPOLE_CHECK(record.current.has_value());
  const model::Job& job = record.job;
  const model::RingShape shape = model::shape_of(*record.current);
  const double passed_s = time.share * time.slot_s;
  const double stopped_s = record.resized ? std::min(job.progress.resize_s, time.slot_s) : 0;
  const double per_slot = job.progress.per_slot(shape, time.slot_s);
  // A whole slot is slot_progress(), by the same operations, so that what a policy foresaw is what comes.
  ActiveJob view = view_of(record, model::JobId(), time.start_s, 0);
  double gained = time.share >= 1 ? slot_progress(view, shape, record.resized, time.slot_s)
                                  : std::max(0.0, passed_s - stopped_s) / time.slot_s * per_slot;
  if (record.reported) {
    gained = std::max(0.0, *record.reported - record.progress);
    record.reported.reset();
  }
  Credit result;
  result.used_s = passed_s;
  if (job.work) {
    const double left = *job.work - record.progress;
    if (gained >= left - kWorkTolerance * *job.work) {
      gained = left;
      result.ended = true;
      if (per_slot > 0) {
        result.used_s = std::clamp(stopped_s + left / per_slot * time.slot_s, 0.0, passed_s);
      }
    }
  }
  result.utility = utility_gain(view, gained, time.start_s);
  const bool late = job.utility.kind == model::UtilityKind::kDeadline && time.start_s >= job.utility.deadline_s;
  record.progress = result.ended ? *job.work : record.progress + gained;
  record.late_progress += late ? gained : 0;
  record.worker_slots += shape.workers * (result.ended ? result.used_s / time.slot_s : time.share);
  record.attained_s += shape.workers * job.demand[accelerator] * result.used_s;
  record.held_s += result.used_s;
  record.last_ran_s = time.start_s + result.used_s;
  if (job.budget && time.share >= 1 && !result.ended) {
    view = view_of(record, model::JobId(), time.start_s, 0);
    result.ended = worker_limit(view) == 0;
  }
  return result;
}

}  // namespace maypole::sched
