// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/model/job.h"

namespace maypole::sched {

/// The largest part of all that the cluster holds of any resource that one worker of the job takes; in (0, 1] for a job that fits.
[[nodiscard]] double dominant_share(const model::Job& job, const model::Cluster& cluster);

}  // namespace maypole::sched
