// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/peers.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace maypole::overlap {
namespace {

constexpr std::size_t kAlignmentBytes = 64;  // of tensors in an arena

/// One load for each tensor.
std::vector<GroupLoad> tensor_loads(const model::Profile& profile) {
  const double backward_s = profile.backward_s();
  std::vector<GroupLoad> loads;
  std::size_t layer = 0;
  double forward_before = 0;
  double backward_before = 0;
  for (const model::ProfiledTensor& tensor : profile.tensors) {
    for (; layer < tensor.layer; ++layer) {
      forward_before += profile.layers[layer].forward.median_s;
      backward_before += profile.layers[layer].backward.median_s;
    }
    loads.push_back({.bytes = static_cast<double>(tensor.bytes()), .ready_s = backward_s - backward_before, .need_s = forward_before});
  }
  return loads;
}

class PrioritySchedule final : public Schedule {
 public:
  std::string_view name() const override { return "priority"; }
  ScheduleTraits traits() const override { return {}; }
  std::vector<Action> next(const IterationProgress& progress) const override {
    std::size_t first = progress.groups.size();
    for (std::size_t g = 0; g < progress.groups.size(); ++g) {
      const GroupProgress& group = progress.groups[g];
      if (group.reduce_started && !group.gather_done) {  // in motion
        return group.reduce_done && !group.gather_started ? std::vector<Action>{{Phase::kAllGather, g}} : std::vector<Action>{};
      }
      if (group.ready && !group.reduce_started) {
        first = std::min(first, g);
      }
    }
    return first < progress.groups.size() ? std::vector<Action>{{Phase::kReduceScatter, first}} : std::vector<Action>{};
  }
};

/// The plan whose groups begin with the given tensors, ascending from 0.
FusionPlan plan_of_runs(const model::Profile& profile, const std::vector<bool>& begins_group) {
  const std::vector<PlannedTensor> tensors = planned_tensors(profile);
  const FusionPlan places = plan_fusion(tensors, {.block_bytes = kAlignmentBytes}).value();
  std::vector<std::vector<std::size_t>> begins(places.arenas.size());
  std::vector<bool> begin_here(places.arenas.size(), true);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (begins_group[i]) {
      begin_here.assign(begin_here.size(), true);
    }
    const TensorPlace& place = places.tensors[i];
    if (!place.elements.empty() && begin_here[place.arena]) {
      begins[place.arena].push_back(place.elements.begin / places.arenas[place.arena].block);
      begin_here[place.arena] = false;
    }
  }
  return plan_fusion_at(tensors, kAlignmentBytes, begins).value();
}

}  // namespace

FusionPlan plan_mg_wfbp(const model::Profile& profile, const MergeRule& rule) {
  const std::vector<GroupLoad> loads = tensor_loads(profile);
  const auto all_reduce = [&](double bytes) { return 2 * rule.phase(bytes); };
  std::vector<bool> begins_group(loads.size(), true);
  double link_free_s = 0;  // when the groups that are closed have been sent
  double bytes = 0;        // of the open group
  for (std::size_t i = loads.size(); i-- > 0;) {
    bytes += loads[i].bytes;
    if (i == 0) {
      break;
    }
    const double start_s = std::max(link_free_s, loads[i].ready_s);
    const double end_s = start_s + all_reduce(bytes);
    const double next_ready_s = loads[i - 1].ready_s;
    const bool ready_in_time = next_ready_s < end_s;
    const bool saves = next_ready_s - start_s < 2 * rule.phase.start_s;
    const bool tiny = profile.tensors[i].elements < rule.always_below_elements;
    if (tiny || (ready_in_time && saves)) {
      begins_group[i] = false;
    } else {
      link_free_s = end_s;
      bytes = 0;
    }
  }
  return plan_of_runs(profile, begins_group);
}

std::vector<GroupLoad> horovod_groups(const model::Profile& profile, const HorovodOptions& options) {
  MAYPOLE_CHECK(options.cycle_s > 0);
  const std::vector<GroupLoad> loads = tensor_loads(profile);
  std::vector<GroupLoad> groups;
  double tick_s = -1;
  for (std::size_t i = loads.size(); i-- > 0;) {
    const double tick = std::ceil(loads[i].ready_s / options.cycle_s - 1e-9) * options.cycle_s;
    if (groups.empty() || tick != tick_s || groups.back().bytes + loads[i].bytes > options.fusion_bytes) {
      groups.push_back({});
      tick_s = tick;
    }
    GroupLoad& group = groups.back();
    group.bytes += loads[i].bytes;
    group.ready_s = loads[i].ready_s;
    group.need_s = loads[i].need_s;
    group.ready_delay_s = tick - loads[i].ready_s + options.negotiation_s;
  }
  std::ranges::reverse(groups);  // forward order
  return groups;
}

double negotiation_s(const Network& network, std::size_t workers) {
  return workers <= 1 ? 0 : 2 * static_cast<double>(std::bit_width(workers - 1)) * network.between_hosts.alpha_s;
}

std::vector<GroupLoad> tensor_parts(const model::Profile& profile, double part_bytes) {
  std::vector<GroupLoad> parts;
  for (const GroupLoad& tensor : tensor_loads(profile)) {
    const double count = std::max(1.0, std::ceil(tensor.bytes / part_bytes));
    GroupLoad part = tensor;
    part.bytes = tensor.bytes / count;
    parts.insert(parts.end(), static_cast<std::size_t>(count), part);
  }
  return parts;
}

std::unique_ptr<Schedule> make_priority_schedule() { return std::make_unique<PrioritySchedule>(); }

}  // namespace maypole::overlap
