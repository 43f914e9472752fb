// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/fusion_plan.h"

#include "maypole/base/status.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

namespace maypole::overlap {
namespace {

constexpr std::size_t kAlignmentBytes = 64;  // a cache line: vector loads of no tensor straddle one

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

/// Places every tensor in the arena of its dtype, in forward order.
void place_tensors(const std::vector<PlannedTensor>& tensors, std::size_t block_bytes, FusionPlan& plan) {
  for (const PlannedTensor& tensor : tensors) {
    auto arena = std::find_if(plan.arenas.begin(), plan.arenas.end(), [&](const Arena& a) { return a.dtype == tensor.dtype; });
    const std::size_t size = base::size_of(tensor.dtype);
    if (arena == plan.arenas.end()) {
      arena = plan.arenas.insert(arena, Arena{tensor.dtype, 0, std::max<std::size_t>(1, block_bytes / size)});
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

/// Cuts one arena into groups that end where `next_end` says, given where they begin.
template <typename NextEnd>
void cut_arena(FusionPlan& plan, std::size_t arena_index, const NextEnd& next_end) {
  const Arena& arena = plan.arenas[arena_index];
  const std::vector<std::size_t> indices = tensors_of(plan, arena_index);
  const std::size_t earlier = plan.groups.size();
  std::size_t next = 0;  // the first tensor that does not end before the group begins
  for (std::size_t begin = 0; begin < arena.count;) {
    const std::size_t end = std::min(arena.count, next_end(begin));
    Group group{arena_index, {begin, end, arena.block}, {}};
    while (plan.tensors[indices[next]].elements.end <= begin) {
      ++next;
    }
    for (std::size_t k = next; k < indices.size() && plan.tensors[indices[k]].elements.begin < end; ++k) {
      group.tensors.push_back(indices[k]);
    }
    if (group.tensors.empty() && plan.groups.size() > earlier) {  // nothing but the gap between two tensors
      plan.groups.back().range.end = end;
    } else {
      plan.groups.push_back(std::move(group));
    }
    begin = end;
  }
}

/// Where a cut at `end` goes when tensors smaller than `split_bytes` are not cut.
std::size_t spare_small_tensors(const FusionPlan& plan, std::size_t arena_index, std::size_t end, std::size_t split_bytes) {
  const Arena& arena = plan.arenas[arena_index];
  const auto covering = std::ranges::find_if(plan.tensors, [&](const TensorPlace& place) {
    return place.arena == arena_index && place.elements.begin < end && end < place.elements.end;
  });
  const bool spare = covering != plan.tensors.end() && covering->elements.size() * base::size_of(arena.dtype) < split_bytes;
  return spare ? round_up(covering->elements.end, arena.block) : end;
}

/// Numbers the groups in forward order and tells every tensor which ones it touches.
void number_groups(FusionPlan& plan) {
  std::ranges::sort(plan.groups, {}, [](const Group& group) { return std::tuple(group.tensors.front(), group.arena, group.range.begin); });
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    for (const std::size_t i : plan.groups[g].tensors) {
      plan.tensors[i].groups.push_back(g);
    }
  }
}

}  // namespace

absl::StatusOr<FusionPlan> plan_fusion(const std::vector<PlannedTensor>& tensors, const FusionOptions& options) {
  if (options.block_bytes == 0 || options.group_bytes == 0 || options.first_group_bytes == 0) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "fusion sizes must be positive: block_bytes is {}, group_bytes is {}, first_group_bytes is {}", options.block_bytes,
                       options.group_bytes, options.first_group_bytes);
  }
  FusionPlan plan;
  place_tensors(tensors, options.block_bytes, plan);
  const auto first_used = std::ranges::find_if(plan.tensors, [](const TensorPlace& place) { return !place.elements.empty(); });
  for (std::size_t a = 0; a < plan.arenas.size(); ++a) {
    const Arena arena = plan.arenas[a];
    const bool needed_first = first_used != plan.tensors.end() && first_used->arena == a;
    cut_arena(plan, a, [&](std::size_t begin) {
      const std::size_t bytes = begin == 0 && needed_first ? options.first_group_bytes : options.group_bytes;
      const std::size_t end = begin + std::max<std::size_t>(1, bytes / (arena.block * base::size_of(arena.dtype))) * arena.block;
      return options.split_bytes == 0 ? end : spare_small_tensors(plan, a, end, options.split_bytes);
    });
  }
  number_groups(plan);
  return plan;
}

absl::StatusOr<FusionPlan> plan_fusion_at(const std::vector<PlannedTensor>& tensors, std::size_t block_bytes,
                                          const std::vector<std::vector<std::size_t>>& begins) {
  if (block_bytes == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "block_bytes must be positive");
  }
  FusionPlan plan;
  place_tensors(tensors, block_bytes, plan);
  if (begins.size() != plan.arenas.size()) {
    return base::error(absl::StatusCode::kInvalidArgument, "cuts are given for {} arenas, the model has {}", begins.size(),
                       plan.arenas.size());
  }
  for (std::size_t a = 0; a < plan.arenas.size(); ++a) {
    const Arena arena = plan.arenas[a];
    const std::size_t num_blocks = (arena.count + arena.block - 1) / arena.block;
    const std::vector<std::size_t>& cuts = begins[a];
    if (cuts.size() > num_blocks) {
      return base::error(absl::StatusCode::kInvalidArgument, "{} groups are more than the {} blocks of {} bytes that the tensors fill",
                         cuts.size(), num_blocks, block_bytes);
    }
    const bool ascending = std::ranges::adjacent_find(cuts, std::greater_equal<>{}) == cuts.end();
    if (arena.count > 0 && (cuts.empty() || cuts.front() != 0 || cuts.back() >= num_blocks || !ascending)) {
      return base::error(absl::StatusCode::kInvalidArgument, "groups must begin at ascending blocks, the first at block 0, all below {}",
                         num_blocks);
    }
    std::size_t next = 0;
    cut_arena(plan, a, [&](std::size_t) {
      ++next;
      return next < cuts.size() ? cuts[next] * arena.block : arena.count;
    });
  }
  number_groups(plan);
  return plan;
}

std::vector<std::vector<std::size_t>> cuts_of(const FusionPlan& plan) {
  std::vector<std::vector<std::size_t>> begins(plan.arenas.size());
  for (const Group& group : plan.groups) {
    begins[group.arena].push_back(group.range.begin / group.range.block);
  }
  for (std::vector<std::size_t>& cuts : begins) {
    std::ranges::sort(cuts);
  }
  return begins;
}

}  // namespace maypole::overlap
