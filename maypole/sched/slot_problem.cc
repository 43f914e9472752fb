// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/slot_problem.h"

#include <algorithm>
#include <cmath>

namespace maypole::sched {

double slot_progress(const ActiveJob& job, const model::RingShape& shape, bool resized, double slot_s) {
  double progress = job.job->progress.per_slot(shape, slot_s);
  if (resized && job.running()) {
    progress *= std::max(0.0, 1 - job.job->progress.resize_s / slot_s);
  }
  return job.job->work ? std::clamp(*job.job->work - job.progress, 0.0, progress) : progress;
}

double utility_gain(const ActiveJob& job, double progress, double start_s) {
  const bool late = job.job->utility.kind == model::UtilityKind::kDeadline && start_s >= job.job->utility.deadline_s;
  return job.job->value(job.progress + progress, job.late_progress + (late ? progress : 0)) -
         job.job->value(job.progress, job.late_progress);
}

int worker_limit(const ActiveJob& job) {
  double limit = job.job->max_workers;
  if (job.job->budget) {
    limit = std::min(limit, std::floor(*job.job->budget - job.worker_slots + 1e-9));
  }
  return limit >= job.job->min_workers ? static_cast<int>(limit) : 0;
}

}  // namespace maypole::sched
