// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much a workload asks of a cluster, before anything is scheduled.

#include "maypole/model/job.h"

#include <string>

namespace maypole::sim {

struct OfferedLoad {
  double load = 0;          // of the scarcest resource: resource-seconds that the jobs need / that the cluster has in that time
  std::string resource;     // which one
  double alone_s = 0;       // seconds that the jobs would take one after the other, each with its requested workers
  std::size_t endless = 0;  // jobs with neither work nor budget nor horizon
};

/// Seconds that a job takes at least: with its requested workers or with the most, whichever is faster; infinite where it has no end.
[[nodiscard]] double fastest_s(const model::Job& job, const model::Instance& instance);

/// A job needs its requested workers for work / rate seconds, on as few servers as hold them, or for its whole budget, at most to the
/// horizon. The cluster's time is that from the first arrival to the horizon; where that is open, to the last arrival, at least one slot.
[[nodiscard]] OfferedLoad offered_load(const model::Instance& instance);

/// Above this, a queue grows for as long as jobs arrive.
inline constexpr double kOverload = 1;

}  // namespace maypole::sim
