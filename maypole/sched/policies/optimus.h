// SPDX-License-Identifier: Apache-2.0
#pragma once

// optimus: marginal gain (Peng et al., EuroSys 2018). Each job first gets its min_workers, those with the least remaining time before
// others; then each next worker goes to the job whose remaining time it shortens most, per dominant share of the worker. A worker that
// shortens nothing is not given. Jobs that have no end (neither work nor budget) come last, by relative gain in speed.

#include "maypole/sched/policy.h"

namespace maypole::sched {

[[nodiscard]] std::unique_ptr<Policy> make_optimus(const PolicyOptions& options);

}  // namespace maypole::sched
