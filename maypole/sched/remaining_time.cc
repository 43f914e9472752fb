// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/remaining_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::sched {

RemainingTime::RemainingTime(const SlotProblem& problem) : slot_s_(problem.slot_s), largest_(problem.cluster->num_resources(), 0) {
  for (const model::Server& server : problem.cluster->parts().servers) {
    for (std::size_t i = 0; i < largest_.size(); ++i) {
      const auto r = model::ResourceId::from_index(i);
      largest_[r] = std::max(largest_[r], server.capacity[r]);
    }
  }
}

double RemainingTime::rate(const ActiveJob& job, int workers) const {
  if (workers <= 0) {
    return 0;
  }
  int servers = 1;
  if (!job.job->progress.depends_on_workers_only()) {
    double a_server = workers;
    for (std::size_t i = 0; i < largest_.size(); ++i) {
      const auto r = model::ResourceId::from_index(i);
      if (job.job->demand[r] > 0) {
        a_server = std::min(a_server, std::floor(largest_[r] / job.job->demand[r] * (1 + 1e-9)));
      }
    }
    servers = static_cast<int>(std::ceil(workers / std::max(1.0, a_server)));
  }
  return job.job->progress.per_slot({workers, servers, job.job->edge_bandwidth}, slot_s_);
}

double RemainingTime::slots(const ActiveJob& job, int workers) const {
  double slots = std::numeric_limits<double>::infinity();
  if (workers <= 0) {
    return slots;
  }
  const double speed = rate(job, workers);
  if (job.job->work && speed > 0) {
    slots = std::max(0.0, *job.job->work - job.progress) / speed;
  }
  if (job.job->budget) {
    slots = std::min(slots, std::max(0.0, *job.job->budget - job.worker_slots) / workers);
  }
  return slots;
}

}  // namespace maypole::sched
