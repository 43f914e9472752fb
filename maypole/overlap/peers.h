// SPDX-License-Identifier: Apache-2.0
#pragma once

// Peers that only the iteration simulator knows: how they form groups, and in which order they send them.
//
//   mg-wfbp   a fusion plan for wfbp: merges a tensor into the next one to come where that saves a start-up
//             (S. Shi, X. Chu and B. Li, MG-WFBP, INFOCOM 2019)
//   horovod   wfbp over groups that a coordinator forms: in every cycle, what has become ready since the last one, up to a fusion buffer
//   priority  ByteScheduler: all-reduces of parts of tensors, the one that forward needs first goes first, and forward waits only for
//             its own. One part is in motion at a time: on the modelled link, which has no gaps, more credit only delays what is urgent.

#include "maypole/model/profile.h"
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/schedule.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace maypole::overlap {

struct MergeRule {
  PhaseCost phase;
  std::size_t always_below_elements = 0;  // smaller tensors are merged in any case (DeAR's copy of the rule: 8192)
};
/// The plan of mg-wfbp. Groups begin with tensors; blocks are as small as the alignment of tensors.
[[nodiscard]] FusionPlan plan_mg_wfbp(const model::Profile& profile, const MergeRule& rule);

struct HorovodOptions {
  double fusion_bytes = 128 << 20;
  double cycle_s = 1e-3;
  double negotiation_s = 0;  // from a tick until all ranks have agreed
};
[[nodiscard]] std::vector<GroupLoad> horovod_groups(const model::Profile& profile, const HorovodOptions& options);
/// What a coordinator's round trip takes: two small messages along a tree.
[[nodiscard]] double negotiation_s(const Network& network, std::size_t workers);

/// Every tensor by itself, cut into parts of at most `part_bytes`.
[[nodiscard]] std::vector<GroupLoad> tensor_parts(const model::Profile& profile, double part_bytes);
[[nodiscard]] std::unique_ptr<Schedule> make_priority_schedule();

}  // namespace maypole::overlap
