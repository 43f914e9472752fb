// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a job could do if it had the empty cluster to itself: the yardstick of every policy.

#include "maypole/model/job.h"

namespace maypole::sim {

/// The most progress per slot that any number of workers, on any number of servers, gives on the empty cluster (links not looked at).
struct BestRate {
  double per_slot = 0;         // over all worker counts
  double per_worker_slot = 0;  // the best progress for a worker-slot
};
[[nodiscard]] BestRate best_rate(const model::Job& job, const model::Cluster& cluster, double slot_s);

/// An upper bound on the job's utility at the horizon (exact for the paper's constant zeta with min_workers 1), from the first slot that
/// starts at or after its arrival, by its work, its budget and its best rate. With an open horizon time does not limit it.
[[nodiscard]] double reach_alone(const model::Job& job, const model::Instance& instance);

/// The sum over all jobs.
[[nodiscard]] double sum_of_reach_alone(const model::Instance& instance);

}  // namespace maypole::sim
