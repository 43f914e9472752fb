// SPDX-License-Identifier: Apache-2.0
#pragma once

// drf: dominant resource fairness (Ghodsi et al., NSDI 2011), with elastic jobs as users. Each next worker goes to the job whose dominant
// share (its workers' part of the cluster in the resource of which they take most), divided by its weight, is least; of equals to the first
// to arrive. Jobs of weight 0 come after all others.

#include "maypole/sched/policy.h"

namespace maypole::sched {

[[nodiscard]] std::unique_ptr<Policy> make_drf(const PolicyOptions& options);

}  // namespace maypole::sched
