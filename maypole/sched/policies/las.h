// SPDX-License-Identifier: Apache-2.0
#pragma once

// las: least attained service (Tiresias). Rigid and preemptive; service is accelerator-seconds. With a threshold there are two queues: jobs
// that have attained less come before all others, and within a queue the order is that of arrival. Without one (negative) the order is that
// of the service itself; of equals the running job comes first, then the first to arrive.

#include "maypole/sched/policy.h"

namespace maypole::sched {

[[nodiscard]] std::unique_ptr<Policy> make_las(const PolicyOptions& options);

}  // namespace maypole::sched
