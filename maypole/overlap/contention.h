// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much communication slows computing on a machine: one factor, fitted to iterations that were measured.

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

/// The factor in [0, 4] with the least sum of squared logarithms of predicted over measured; 0 without measurements. Feed it to
/// Network::contention.
[[nodiscard]] double fit_contention(std::span<const MeasuredIteration> iterations);

}  // namespace maypole::overlap
