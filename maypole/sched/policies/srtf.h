// SPDX-License-Identifier: Apache-2.0
#pragma once

// srtf: shortest remaining time first. Rigid and preemptive; remaining time is that with the job's `workers`, until its work is done or its
// budget used up. Jobs without either come last, in order of arrival.

#include "maypole/sched/policy.h"

namespace maypole::sched {

[[nodiscard]] std::unique_ptr<Policy> make_srtf(const PolicyOptions& options);

}  // namespace maypole::sched
