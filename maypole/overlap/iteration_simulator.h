// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one training iteration takes, in virtual time, under a schedule, a fusion plan and a network.
//
// The simulator asks the same Schedule objects as the engine. Three servers work beside each other:
//
//   compute   backward from the last layer to the first, step(), forward from the first to the last. Forward stands still before the
//             first use of a group that is not current; sync and wfbp stand still at the end of backward until all is gathered.
//   link      one operation at a time: reduce-scatters in the order in which the schedule starts them, else the all-gather that forward
//             needs first. At every segment it serves the most urgent operation, so a reduce-scatter waits for one segment at most.
//   update    one group at a time, after its all-gather (replicated) or before it (sharded); sync and wfbp update in step().
//
// Moving bytes needs the processor: while a group of n bytes is on the link, compute is slower by as much as makes contention_s_per_byte
// for each of the n (P-1)/P bytes that a worker sends. Every rank is alike. (Where workers share a machine, the work of
// moving bytes gathers on one core, and the rank that computes there is late: the others wait for it, so it is the one that counts.)
//
// Time 0 is the begin of a backward pass, and the iteration ends with the next forward. Nothing of one iteration reaches into the next
// backward, since forward uses every group; so a single iteration is the steady state.
//
// Cost: O(groups) events, each asks the schedule once.

#include "maypole/model/profile.h"
#include "maypole/overlap/fusion_plan.h"
#include "maypole/overlap/network_model.h"
#include "maypole/overlap/schedule.h"

#include <cstddef>
#include <span>
#include <vector>

namespace maypole::overlap {

/// A group as the simulator sees it.
struct GroupLoad {
  double bytes = 0;
  double ready_s = 0;        // backward work after which its gradients are there
  double need_s = 0;         // forward work before its first use
  double ready_delay_s = 0;  // from then until it may be sent: the pace of a coordinator
};

/// Groups of a plan under a profile; tensors[i] of the plan is tensors[i] of the profile.
[[nodiscard]] std::vector<GroupLoad> group_loads(const model::Profile& profile, const FusionPlan& plan);
/// The profile's tensors as plan_fusion() takes them.
[[nodiscard]] std::vector<PlannedTensor> planned_tensors(const model::Profile& profile);

/// All that an iteration depends on besides its groups and its schedule.
struct IterationSetting {
  double forward_s = 0;
  double backward_s = 0;
  double update_s = 0;  // of all parameters, by one worker
  PhaseCost phase;
  double segment_s = 0;
  double contention_s_per_byte = 0;  // computing that each byte sent costs
  std::size_t workers = 1;
  UpdateMode update = UpdateMode::kReplicated;
  bool record = false;  // fill the timeline
};
[[nodiscard]] IterationSetting setting_of(const model::Profile& profile, const Network& network, std::size_t workers);

enum class Lane { kCompute, kReduceScatter, kAllGather, kUpdate, kWait };

struct Span {
  Lane lane = Lane::kCompute;
  int group = -1;        // none: compute
  bool forward = false;  // of compute
  double begin_s = 0;
  double end_s = 0;
};

struct SimulatedGroup {
  double bytes = 0;
  double reduce_scatter_s = 0;  // on the link
  double all_gather_s = 0;
  double exposed_s = 0;  // time that compute stood still for this group
};

struct SimulatedIteration {
  double iteration_s = 0;
  double step_s = 0;     // when backward (and what it waits for) was over
  double exposed_s = 0;  // time that compute stood still
  double reduce_scatter_s = 0;
  double all_gather_s = 0;
  double communication_s = 0;  // C of this plan: both phases of every group
  double bound_s = 0;          // max(F + B, C) with C of one message: no schedule and no plan can beat it
  std::vector<SimulatedGroup> groups;
  std::vector<Span> timeline;
};

/// The bound of max(F + B, C) for `bytes` in one message.
[[nodiscard]] double iteration_bound(const IterationSetting& setting, double bytes);

[[nodiscard]] SimulatedIteration simulate(const Schedule& schedule, std::span<const GroupLoad> groups, const IterationSetting& setting);

/// The same for a plan; `update` and `record` of the setting are defaults.
[[nodiscard]] SimulatedIteration simulate(const model::Profile& profile, const Network& network, std::size_t workers,
                                          const Schedule& schedule, const FusionPlan& plan);

}  // namespace maypole::overlap
