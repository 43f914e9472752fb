// SPDX-License-Identifier: Apache-2.0
#pragma once

// Times of one model's iterations, from which the report is made. An iteration reaches from one step() to the next. Not thread-safe.

#include "maypole/base/units.h"
#include "maypole/pipeline/report.h"
#include "maypole/pipeline/tuning_window.h"

#include <cstddef>
#include <deque>
#include <vector>

namespace maypole::pipeline {

class Measurements {
 public:
  explicit Measurements(std::size_t num_groups) : current_(num_groups) {}
  /// From the iteration that runs on there are so many groups; what was measured before is forgotten.
  void regroup(std::size_t num_groups);

  void mark_forward(base::TimePoint now);
  void mark_backward(base::TimePoint now);
  void end_backward(base::TimePoint now);
  /// step() begins: the iteration is complete.
  void mark_step(base::TimePoint now);

  /// What the iteration that mark_step() ended took; zeros before the second.
  [[nodiscard]] const TunedIteration& last_iteration() const { return last_iteration_; }
  /// Computing since step(), and since mark_backward(): without the time that stood still.
  [[nodiscard]] base::Nanoseconds computed(base::TimePoint now) const { return now - last_step_ - current_.exposed; }
  [[nodiscard]] base::Nanoseconds computed_in_backward(base::TimePoint now) const { return computed(now) - computed_at_backward_; }

  /// The computing thread stood still for `group`.
  void add_exposed(std::size_t group, base::Nanoseconds duration);
  void add_update(base::Nanoseconds duration) { current_.update += duration; }
  /// An operation was in motion from `begin` to `end`; returns the moment from which on it had the lane for itself: operations share
  /// a lane, so the time before the one that ended last counts for that one only.
  base::TimePoint add_reduce_scatter(std::size_t group, base::TimePoint begin, base::TimePoint end);
  base::TimePoint add_all_gather(std::size_t group, base::TimePoint begin, base::TimePoint end);

  /// Begin of the running forward and backward, for the timeline.
  [[nodiscard]] base::TimePoint forward_begin() const { return forward_begin_; }
  [[nodiscard]] base::TimePoint backward_begin() const { return backward_begin_; }

  /// Medians over the last iterations after warm-up; fills the times of a report and of its groups.
  void fill(Report& report) const;

 private:
  void add_busy(base::TimePoint begin, base::TimePoint end);

  struct Sample {
    explicit Sample(std::size_t num_groups) : group_exposed(num_groups), group_reduce(num_groups), group_gather(num_groups) {}
    base::Nanoseconds iteration{}, forward{}, backward{}, exposed{}, reduce{}, gather{}, update{}, busy{};
    std::vector<base::Nanoseconds> group_exposed, group_reduce, group_gather;
  };
  enum class Phase { kOutside, kForward, kBackward };

  std::deque<Sample> samples_;  // the last kKept of them
  Sample current_;
  std::size_t iterations_seen_ = 0;
  Phase phase_ = Phase::kOutside;
  base::TimePoint forward_begin_{}, backward_begin_{}, last_step_{}, last_reduce_end_{}, last_gather_end_{}, last_end_{};
  base::Nanoseconds exposed_at_phase_{}, computed_at_backward_{};
  TunedIteration last_iteration_;
};

}  // namespace maypole::pipeline
