// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/reach_alone.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::sim {

BestRate best_rate(const model::Job& job, const model::Cluster& cluster, double slot_s) {
  std::int64_t most = model::empty_cluster_workers(job, cluster, job.max_workers);
  if (job.budget) {
    most = static_cast<std::int64_t>(std::min(static_cast<double>(most), std::floor(*job.budget + 1e-9)));
  }
  BestRate best;
  for (int workers = job.min_workers; workers <= most; ++workers) {
    const int most_servers = job.progress.depends_on_workers_only() ? 1 : std::min(workers, static_cast<int>(cluster.num_servers()));
    for (int servers = 1; servers <= most_servers; ++servers) {
      const double rate = job.progress.per_slot({workers, servers, job.edge_bandwidth}, slot_s);
      best.per_slot = std::max(best.per_slot, rate);
      best.per_worker_slot = std::max(best.per_worker_slot, rate / workers);
    }
  }
  return best;
}

double reach_alone(const model::Job& job, const model::Instance& instance) {
  const BestRate best = best_rate(job, instance.cluster, instance.slot_s);
  if (best.per_slot <= 0) {
    return job.value(0);
  }
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double first = std::ceil(job.arrival_s / instance.slot_s - 1e-9);
  const double slots = instance.slots > 0 ? std::max(0.0, instance.slots - first) : kInfinite;
  double most = slots == 0 ? 0 : slots * best.per_slot;
  if (job.budget) {
    most = std::min(most, std::floor(*job.budget + 1e-9) * best.per_worker_slot);
  }
  if (job.work) {
    most = std::min(most, *job.work);
  }
  if (job.utility.kind != model::UtilityKind::kDeadline) {
    return job.value(most);
  }
  const double slots_on_time = std::max(0.0, std::ceil(job.utility.deadline_s / instance.slot_s - 1e-9) - first);
  const double on_time = std::min(most, slots_on_time * best.per_slot);
  return job.value(most, most - on_time);
}

double sum_of_reach_alone(const model::Instance& instance) {
  double sum = 0;
  for (const model::Job& job : instance.jobs) {
    sum += reach_alone(job, instance);
  }
  return sum;
}

}  // namespace maypole::sim
