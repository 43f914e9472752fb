// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every schedule with its best fusion on one network: what `maypole plan` shows.

#include "maypole/model/profile.h"
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/network_model.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::overlap {

/// sync, wfbp, mg-wfbp, horovod, priority, dear, weave.
[[nodiscard]] const std::vector<std::string>& simulated_schedules();

struct FusionChoice {
  std::string schedule;
  std::string fusion;  // for people: what was chosen
  SimulatedIteration iteration;
};

struct ChoiceOptions {
  std::size_t block_bytes = 256 << 10;  // as FusionOptions
  std::optional<std::size_t> num_groups =
      std::nullopt;     // so many even groups instead of the best; schedules that form groups of their own ignore it
  bool record = false;  // fill the timeline
};

/// What each schedule may choose:
///   sync                one message
///   wfbp, dear, weave   the cuts of plan_search.h; with several dtypes the best of even sizes
///   mg-wfbp             its merging rule, with and without merging all small tensors
///   horovod             fusion buffers of 1 to 512 MB, cycles of 1 to 25 ms
///   priority            parts of 1 to 512 MB of single tensors, or groups as for weave (which ByteScheduler does not form)
/// Errors: an unknown schedule, an impossible network, more groups than blocks.
[[nodiscard]] absl::StatusOr<FusionChoice> choose_fusion(const model::Profile& profile, const Network& network, std::size_t workers,
                                                         std::string_view schedule, const ChoiceOptions& options);

}  // namespace maypole::overlap
