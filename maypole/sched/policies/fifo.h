// SPDX-License-Identifier: Apache-2.0
#pragma once

// fifo: in order of arrival, each job its `workers`. A job that finds no place waits and lets later ones pass; running jobs keep their
// rings to the end.

#include "maypole/sched/policy.h"

namespace maypole::sched {

[[nodiscard]] std::unique_ptr<Policy> make_fifo(const PolicyOptions& options);

}  // namespace maypole::sched
