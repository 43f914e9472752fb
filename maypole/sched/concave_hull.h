// SPDX-License-Identifier: Apache-2.0
#pragma once

// Looking ahead. GADGET's Algorithm 1 sees one slot: where a utility is convex at first (the sigmoid of the paper's own experiment), the
// gain of a first slot is next to nothing and the job never starts. What counts is what the progress of this slot is worth on the way to
// where the job can still get: the smallest concave function above mu on [p, p + reach], p the progress so far. Its increment is the
// gain that `gadget` maximises. For a concave mu the hull is mu itself and the gain is that of problem (10).
//
// For the sigmoid the hull is a chord from p to the point of tangency t > expected (or to p + reach, if that comes first), then mu.

#include "maypole/sched/slot_problem.h"

namespace maypole::sched {

/// The most progress that the job makes in one slot on any ring of at most `workers` workers, as if nobody else were there.
[[nodiscard]] double best_rate(const ActiveJob& job, int workers, double slot_s);
/// Progress that the job can still make: its slots at best_rate, its budget at the best progress of a worker-slot, its work, whichever
/// ends first. Infinite where nothing ends it.
[[nodiscard]] double reachable_progress(const ActiveJob& job, double slot_s);

/// The increment of the hull from the job's progress on.
class HullGain {
 public:
  /// `start_s`: when the slot begins (deadline utilities look at it). The job must outlive this.
  HullGain(const ActiveJob& job, double reach, double start_s);

  /// hull(p + progress) - hull(p), for progress >= 0; at most reach beyond p is expected. Weighted by the job's weight.
  [[nodiscard]] double operator()(double progress) const;

  /// Progress to the end of the hull's chord; 0 where the utility is concave from here on.
  [[nodiscard]] double chord() const { return chord_; }

 private:
  const ActiveJob* job_;
  double start_s_;
  double chord_ = 0;   // length of the chord; 0: none
  double slope_ = 0;   // of the chord, weighted
  double at_end_ = 0;  // weighted gain at the end of the chord
};

}  // namespace maypole::sched
