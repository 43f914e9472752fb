// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/concave_hull.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::sched {

double best_rate(const ActiveJob& job, int workers, double slot_s) {
  const model::ProgressModel& progress = job.job->progress;
  const auto at = [&](int count, int servers) { return progress.per_slot({count, servers, job.job->edge_bandwidth}, slot_s); };
  if (progress.depends_on_workers_only()) {
    return at(workers, 1);
  }
  double best = 0;
  for (int count = 1; count <= workers; ++count) {
    if (progress.kind == model::ProgressKind::kTable) {
      for (const model::RatePoint& point : progress.points) {
        best = std::max(best, at(count, std::min(point.servers, count)));
      }
    } else {
      best = std::max({best, at(count, 1), at(count, std::min(count, 2))});
    }
  }
  return best;
}

namespace {

// The most progress of one worker in one slot, over all numbers of workers.
double best_worker_slot(const ActiveJob& job, double slot_s) {
  if (job.job->progress.kind == model::ProgressKind::kConstant) {
    return job.job->progress.zeta;
  }
  double best = 0;
  for (int workers = job.job->min_workers; workers <= job.job->max_workers; ++workers) {
    best = std::max(best, best_rate(job, workers, slot_s) / workers);
  }
  return best;
}

}  // namespace

double reachable_progress(const ActiveJob& job, double slot_s) {
  double reach = std::numeric_limits<double>::infinity();
  if (job.job->work) {
    reach = std::min(reach, std::max(0.0, *job.job->work - job.progress));
  }
  if (std::isfinite(job.remaining_slots)) {
    reach = std::min(reach, job.remaining_slots * best_rate(job, job.job->max_workers, slot_s));
  }
  if (job.job->budget) {
    const double worker_slots = std::max(0.0, *job.job->budget - job.worker_slots);
    reach = std::min(reach, worker_slots * best_worker_slot(job, slot_s));
  }
  return reach;
}

HullGain::HullGain(const ActiveJob& job, double reach, double start_s) : job_(&job), start_s_(start_s) {
  const model::Utility& utility = job.job->utility;
  if (utility.kind != model::UtilityKind::kSigmoid || job.progress >= utility.expected || !(reach > 0)) {
    return;
  }
  const double from = job.progress;
  const double value = utility.value(from);
  // At t the chord's slope equals the derivative; before it the derivative is the larger.
  const auto before_tangency = [&](double t) {
    const double at = utility.value(t);
    return utility.sensitivity * at * (1 - at) * (t - from) > at - value;
  };
  double low = utility.expected;
  double high = std::min(from + reach, utility.expected + 50 / utility.sensitivity + (utility.expected - from));
  if (high > low && !before_tangency(high)) {
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (before_tangency(middle) ? low : high) = middle;
    }
  }
  chord_ = high - from;
  at_end_ = job.job->weight * (utility.value(high) - value);
  slope_ = at_end_ / chord_;
}

double HullGain::operator()(double progress) const {
  if (progress < chord_) {
    return slope_ * progress;
  }
  if (chord_ > 0) {
    return at_end_ + job_->job->value(job_->progress + progress) - job_->job->value(job_->progress + chord_);
  }
  return utility_gain(*job_, progress, start_s_);
}

}  // namespace maypole::sched
