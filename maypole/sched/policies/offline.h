// SPDX-License-Identifier: Apache-2.0
#pragma once

// The optimum over the whole horizon, arrivals known beforehand: what GADGET's guarantee of 1/(3 Gamma + 1) is measured against. For tiny
// instances (about four servers, three jobs, five slots).
//
// First all joint choices of one slot are listed, one for each combination of what matters to the jobs (workers, servers where progress
// depends on them, the ring itself where a resize costs); then a dynamic program over slots and states (progress, budget used, rings held)
// takes the best of them in every state that can be reached. It is a function and no policy: a policy does not know what will arrive.

#include "maypole/model/job.h"
#include "maypole/sched/decision.h"

#include <absl/status/statusor.h>

namespace maypole::sched {

struct OfflineLimits {
  std::size_t joint_choices = 200'000;  // of one slot, before equal ones are merged
  std::size_t steps = 20'000'000;       // states times choices
};

struct OfflineOptimum {
  double utility = 0;               // sum of all gains: what the jobs are worth at the end less what they were at the beginning
  std::vector<Decision> decisions;  // [slot]
  std::size_t states = 0;
};

/// Errors: kInvalidArgument without a horizon; kUnimplemented for a limit of racks that ends with waiting, and for resize costs where the
/// links form no tree (there the choice among rings of equal loads may matter later); kResourceExhausted beyond the limits, with the
/// numbers.
[[nodiscard]] absl::StatusOr<OfflineOptimum> solve_offline(const model::Instance& instance, const OfflineLimits& limits = {});

}  // namespace maypole::sched
