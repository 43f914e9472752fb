// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much communication slows computing on a machine: one number, fitted to iterations that were measured. Moving a byte takes so much
// processor time on any link: the number found on one serves for another.

#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/schedule.h"

#include <span>
#include <vector>

namespace maypole::overlap {

/// An iteration that ran: what the simulator needs to repeat it, and what it took. Use others than those to be predicted.
struct MeasuredIteration {
  const Schedule* schedule = nullptr;  // borrowed
  std::vector<GroupLoad> groups;
  IterationSetting setting;  // its contention is ignored
  double measured_s = 0;
};

/// The seconds of computing per byte sent with the least sum of squared logarithms of predicted over measured, up to four times what a byte
/// takes on the fastest link; where it makes no difference (the link was the limit), the least; 0 without measurements. Feed it to
/// Network::contention_s_per_byte.
[[nodiscard]] double fit_contention(std::span<const MeasuredIteration> iterations);

}  // namespace maypole::overlap
