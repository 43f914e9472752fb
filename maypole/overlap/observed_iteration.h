// SPDX-License-Identifier: Apache-2.0
#pragma once

// From what training shows of itself to groups that suit it: when each gradient was there, when each parameter was first used. The tensors
// stand in forward order. Computing time runs while nothing is waited for, so it is the same under every schedule and every plan.

#include "maypole/overlap/fusion_plan.h"
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/schedule.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <vector>

namespace maypole::overlap {

struct ObservedIteration {
  std::vector<double> ready_s;  // [tensor]: computing from the first gradient of the backward pass on until its own was there
  std::vector<double> need_s;   // [tensor]: computing from step() on until its first use; negative: not seen, used with the one before
};

struct PlanRequest {
  std::vector<PlannedTensor> tensors;  // in forward order
  std::size_t block_bytes = 0;
  bool halved = false;  // float32 travels as bfloat16
};

/// Groups of a plan as the simulator takes them. Readiness falls and need rises along the groups, since reduce-scatters run in plan order
/// and nobody gathers what stands behind a group that is needed later.
[[nodiscard]] std::vector<GroupLoad> observed_loads(const FusionPlan& plan, const ObservedIteration& observed, bool halved);

/// The best groups under the schedule: those of plan_search.h where the tensors fill one arena, else the best of some even sizes.
/// `setting` tells computing and link; its `record` is ignored. Cost: that of best_cuts().
[[nodiscard]] absl::StatusOr<FusionPlan> plan_observed(const PlanRequest& request, const ObservedIteration& observed,
                                                       const IterationSetting& setting, const Schedule& schedule);

}  // namespace maypole::overlap
