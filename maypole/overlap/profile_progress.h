// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one more worker, or a faster edge, brings to a job: its iterations in the simulator, as a progress model of the scheduler.
//
// For each number of workers the iteration is simulated over the seconds that a byte takes on the slowest edge. Under a fixed plan that is
// nearly a broken line, so points are added by halving until the line between them is right to kTolerance, up to where the link decides
// alone. Numbers of workers above kEachWorker are thinned out: what depends on them hardly changes from one to the next.

#include "maypole/model/profile.h"
#include "maypole/model/progress.h"
#include "maypole/overlap/fusion_plan.h"
#include "maypole/overlap/network_model.h"
#include "maypole/overlap/schedule.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <string>

namespace maypole::overlap {

struct ProfiledJob {
  std::string schedule = "weave";
  FusionOptions fusion;
  UpdateMode update = UpdateMode::kReplicated;
  Network network;              // start-up times; its bandwidths are those of a job that reserves none
  std::size_t max_workers = 1;  // simulated up to here
};

/// Errors: an unknown schedule, an update that it does not allow, a plan that cannot be made, an impossible network, no workers.
[[nodiscard]] absl::StatusOr<model::ProgressModel> progress_of(const model::Profile& profile, const ProfiledJob& job);

}  // namespace maypole::overlap
