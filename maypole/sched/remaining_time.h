// SPDX-License-Identifier: Apache-2.0
#pragma once

// How long a job would still run with a given number of workers.

#include "maypole/sched/slot_problem.h"

namespace maypole::sched {

class RemainingTime {
 public:
  explicit RemainingTime(const SlotProblem& problem);

  /// Progress per slot with that many workers, on as few servers as the largest ones would do: an estimate that does not change when the
  /// job starts. 0 for no workers.
  [[nodiscard]] double rate(const ActiveJob& job, int workers) const;
  /// Slots until its work is done or its budget is used up, whichever comes first; infinite without either or without progress.
  [[nodiscard]] double slots(const ActiveJob& job, int workers) const;

 private:
  double slot_s_;
  model::Amounts largest_;  // capacity of one server, by resource
};

}  // namespace maypole::sched
