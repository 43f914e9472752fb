// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a policy is asked in one slot: the per-slot problem (10) of GADGET. Values only; nothing here is changed by a policy.

#include "maypole/model/cluster.h"
#include "maypole/model/job.h"
#include "maypole/sched/service_history.h"

#include <span>
#include <vector>

namespace maypole::sched {

/// One active job: it has arrived and is neither finished nor out of budget.
struct ActiveJob {
  model::JobId id;
  const model::Job* job = nullptr;            // borrowed for the slot
  double progress = 0;                        // zeta_i z_{i,t-1}: accumulated so far
  double late_progress = 0;                   // the part made in slots that began at or after the utility's deadline
  double worker_slots = 0;                    // z_{i,t-1}: of its budget, used so far
  double attained_s = 0;                      // accelerator-seconds received (LAS)
  double remaining_slots = 0;                 // slots left in which it could run, this one included (horizon); infinite where open
  double waiting_s = 0;                       // since it arrived or last ran
  const model::Embedding* current = nullptr;  // the last slot's, null where it did not run; borrowed for the slot

  [[nodiscard]] bool running() const { return current != nullptr; }
};

struct SlotProblem {
  const model::Cluster* cluster = nullptr;
  std::int64_t slot = 0;
  double slot_s = 60;
  /// Slots decided since anything but progress and waiting changed: a job that came or ended, a worker_limit(), a server. 0: something did.
  std::int64_t unchanged_slots = 0;
  const ServiceHistory* history = nullptr;  // of the jobs that have ended; borrowed for the slot; null: none has
  std::vector<ActiveJob> jobs;              // in order of arrival (then of JobId)

  [[nodiscard]] double start_s() const { return static_cast<double>(slot) * slot_s; }
};

/// Progress the job would make in this slot on a ring of that shape: the progress model less the resize cost where the ring differs from
/// the running one (`resized`), capped by what is left of its work. Never negative.
[[nodiscard]] double slot_progress(const ActiveJob& job, const model::RingShape& shape, bool resized, double slot_s);

/// pi: utility gained by `progress` more, in a slot that begins at start_s (deadline utilities look at it).
[[nodiscard]] double utility_gain(const ActiveJob& job, double progress, double start_s);

/// min{N_i, floor(budget left)}: the safe bound Q_i on workers in this slot; 0 where less than min_workers is left.
[[nodiscard]] int worker_limit(const ActiveJob& job);

}  // namespace maypole::sched
