// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/fusion_plan.h"

#include "maypole/base/status.h"

#include <algorithm>
#include <tuple>

namespace maypole::overlap {
namespace {

constexpr std::size_t kAlignmentBytes = 64;  // a cache line: vector loads of no tensor straddle one

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

/// Places every tensor in the arena of its dtype, in forward order.
void place_tensors(const std::vector<PlannedTensor>& tensors, const FusionOptions& options, FusionPlan& plan) {
  for (const PlannedTensor& tensor : tensors) {
    auto arena = std::find_if(plan.arenas.begin(), plan.arenas.end(), [&](const Arena& a) { return a.dtype == tensor.dtype; });
    const std::size_t size = base::size_of(tensor.dtype);
    if (arena == plan.arenas.end()) {
      arena = plan.arenas.insert(arena, Arena{tensor.dtype, 0, std::max<std::size_t>(1, options.block_bytes / size)});
    }
    const std::size_t begin = round_up(arena->count, kAlignmentBytes / size);
    TensorPlace place;
    place.arena = static_cast<std::size_t>(arena - plan.arenas.begin());
    place.elements = {begin, begin + tensor.count};
    if (tensor.count > 0) {
      arena->count = place.elements.end;
    }
    plan.tensors.push_back(std::move(place));
  }
}

/// Indices of the arena's tensors that hold elements, in forward order, which is also the order of their elements.
std::vector<std::size_t> tensors_of(const FusionPlan& plan, std::size_t arena) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].arena == arena && !plan.tensors[i].elements.empty()) {
      indices.push_back(i);
    }
  }
  return indices;
}

/// Cuts one arena into groups; `first_bytes` is the target of its first one.
std::vector<Group> cut_arena(const FusionPlan& plan, std::size_t arena_index, std::size_t first_bytes, std::size_t group_bytes) {
  const Arena& arena = plan.arenas[arena_index];
  const std::size_t block_bytes = arena.block * base::size_of(arena.dtype);
  const auto target = [&](std::size_t bytes) { return std::max<std::size_t>(1, bytes / block_bytes) * arena.block; };
  const std::vector<std::size_t> indices = tensors_of(plan, arena_index);
  std::vector<Group> groups;
  std::size_t next = 0;  // the first tensor that does not end before the group begins
  for (std::size_t begin = 0; begin < arena.count;) {
    const std::size_t end = std::min(arena.count, begin + target(begin == 0 ? first_bytes : group_bytes));
    Group group{arena_index, {begin, end, arena.block}, {}};
    while (plan.tensors[indices[next]].elements.end <= begin) {
      ++next;
    }
    for (std::size_t k = next; k < indices.size() && plan.tensors[indices[k]].elements.begin < end; ++k) {
      group.tensors.push_back(indices[k]);
    }
    if (group.tensors.empty()) {  // nothing but the gap between two tensors
      groups.back().range.end = end;
    } else {
      groups.push_back(std::move(group));
    }
    begin = end;
  }
  return groups;
}

}  // namespace

absl::StatusOr<FusionPlan> plan_fusion(const std::vector<PlannedTensor>& tensors, const FusionOptions& options) {
  if (options.block_bytes == 0 || options.group_bytes == 0 || options.first_group_bytes == 0) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "fusion sizes must be positive: block_bytes is {}, group_bytes is {}, first_group_bytes is {}", options.block_bytes,
                       options.group_bytes, options.first_group_bytes);
  }
  FusionPlan plan;
  place_tensors(tensors, options, plan);
  const auto first_used =
      std::find_if(plan.tensors.begin(), plan.tensors.end(), [](const TensorPlace& place) { return !place.elements.empty(); });
  for (std::size_t a = 0; a < plan.arenas.size(); ++a) {
    const bool needed_first = first_used != plan.tensors.end() && first_used->arena == a;
    for (Group& group : cut_arena(plan, a, needed_first ? options.first_group_bytes : options.group_bytes, options.group_bytes)) {
      plan.groups.push_back(std::move(group));
    }
  }
  std::sort(plan.groups.begin(), plan.groups.end(), [](const Group& a, const Group& b) {
    return std::tuple(a.tensors.front(), a.arena, a.range.begin) < std::tuple(b.tensors.front(), b.arena, b.range.begin);
  });
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    for (const std::size_t i : plan.groups[g].tensors) {
      plan.tensors[i].groups.push_back(g);
    }
  }
  return plan;
}

}  // namespace maypole::overlap
