// SPDX-License-Identifier: Apache-2.0
#pragma once

// What fifo, srtf and las share: each job gets its `workers` or nothing, in an order of importance that is the policy's own.
//
// A running job keeps its ring until a more important one needs the place. The jobs are gone through in order; one that waits and finds
// no place takes it from the least important running jobs behind it, as few as will do, and only where that lets it start. A job whose
// left budget is smaller than its `workers` gets nothing.

#include "maypole/sched/decision.h"
#include "maypole/sched/ring_placement.h"
#include "maypole/sched/slot_problem.h"

#include <cstdint>
#include <limits>
#include <span>

namespace maypole::sched {

/// `order`: positions in problem.jobs, the most important first, each once.
[[nodiscard]] Decision decide_rigid(const SlotProblem& problem, std::span<const std::size_t> order, RingStyle style);

inline constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

/// For how many further slots the waiting jobs would find no place either, provided that no running job falls behind one of them in the
/// order: what is left to them can then only shrink. 0 where less room may help a search that is not exhaustive (reservations on links
/// outside a tree, or placed by the greedy); a rack limit that ends with time is looked at.
[[nodiscard]] std::int64_t slots_without_start(const SlotProblem& problem, const Decision& decision, RingStyle style);

}  // namespace maypole::sched
