// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/observed_iteration.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/overlap/cut_line.h"
#include "maypole/overlap/plan_search.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace maypole::overlap {
namespace {

std::size_t wire_bytes(const FusionPlan& plan, const Group& group, bool halved) {
  const base::DType dtype = plan.arenas[group.arena].dtype;
  return group.range.size() * base::size_of(halved && dtype == base::DType::kFloat32 ? base::DType::kBFloat16 : dtype);
}

/// Even sizes over several arenas, where cuts of one would depend on those of the others.
absl::StatusOr<FusionPlan> best_even_plan(const PlanRequest& request, const ObservedIteration& observed, const IterationSetting& setting,
                                          const Schedule& schedule) {
  std::size_t bytes = 0;
  for (const PlannedTensor& tensor : request.tensors) {
    bytes += tensor.count * base::size_of(tensor.dtype);
  }
  std::optional<FusionPlan> best;
  double least_s = 0;
  for (std::size_t size = request.block_bytes; size < 2 * bytes; size *= 2) {
    MAYPOLE_ASSIGN_OR_RETURN(
        FusionPlan plan,
        plan_fusion(request.tensors, {.block_bytes = request.block_bytes, .group_bytes = size, .first_group_bytes = request.block_bytes}));
    const double iteration_s = simulate(schedule, observed_loads(plan, observed, request.halved), setting).iteration_s;
    if (!best || iteration_s < least_s) {
      best = std::move(plan);
      least_s = iteration_s;
    }
  }
  if (!best) {
    return base::error(absl::StatusCode::kInvalidArgument, "there is nothing to plan: the tensors have no elements");
  }
  return *std::move(best);
}

}  // namespace

std::vector<GroupLoad> observed_loads(const FusionPlan& plan, const ObservedIteration& observed, bool halved) {
  MAYPOLE_CHECK_EQ(observed.ready_s.size(), plan.tensors.size());
  MAYPOLE_CHECK_EQ(observed.need_s.size(), plan.tensors.size());
  std::vector<double> need_s(plan.tensors.size());
  double before = 0;
  for (std::size_t i = 0; i < need_s.size(); ++i) {
    before = observed.need_s[i] < 0 ? before : observed.need_s[i];
    need_s[i] = before;
  }
  std::vector<GroupLoad> loads(plan.groups.size());
  double ready = 0;
  std::optional<double> need;
  for (std::size_t g = loads.size(); g-- > 0;) {
    for (const std::size_t i : plan.groups[g].tensors) {
      ready = std::max(ready, observed.ready_s[i]);
      need = need ? std::min(*need, need_s[i]) : need_s[i];
    }
    loads[g].bytes = static_cast<double>(wire_bytes(plan, plan.groups[g], halved));
    loads[g].ready_s = ready;
    loads[g].need_s = need.value_or(0);
  }
  return loads;
}

absl::StatusOr<FusionPlan> plan_observed(const PlanRequest& request, const ObservedIteration& observed, const IterationSetting& setting,
                                         const Schedule& schedule) {
  const std::size_t block = request.block_bytes;
  MAYPOLE_ASSIGN_OR_RETURN(const FusionPlan finest,
                           plan_fusion(request.tensors, {.block_bytes = block, .group_bytes = block, .first_group_bytes = block}));
  IterationSetting quiet = setting;
  quiet.record = false;
  if (finest.arenas.size() != 1 || finest.groups.empty()) {
    return best_even_plan(request, observed, quiet, schedule);
  }
  const CutLine line(observed_loads(finest, observed, request.halved));
  std::vector<std::size_t> begins;
  for (const std::size_t cut : best_cuts(line, quiet, schedule)) {
    begins.push_back(finest.groups[cut].range.begin / finest.groups[cut].range.block);
  }
  return plan_fusion_at(request.tensors, block, {begins});
}

}  // namespace maypole::overlap
