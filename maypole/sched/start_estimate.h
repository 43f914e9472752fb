// SPDX-License-Identifier: Apache-2.0
#pragma once

// When waiting jobs would start if nothing else happened: running jobs keep their rings to their ends, no job arrives, and whenever one
// ends the waiting ones are tried in order, each with a fixed number of workers. Exact for fifo with rigid jobs; elsewhere a job may start
// earlier, by taking the place of others, or later, behind new ones.

#include "maypole/sched/decision.h"
#include "maypole/sched/slot_problem.h"

#include <optional>
#include <span>

namespace maypole::sched {

/// A job that waits, and the workers with which it would start.
struct WaitingJob {
  std::size_t position = 0;  // in problem.jobs
  int workers = 0;
};

/// The slot in which each of the waiting jobs, given in order, would start; none where that lies behind the end of jobs whose end is not
/// known, or behind a limit of searches.
[[nodiscard]] std::vector<std::optional<std::int64_t>> estimated_starts(const SlotProblem& problem, const Decision& decision,
                                                                        std::span<const WaitingJob> waiting);

}  // namespace maypole::sched
