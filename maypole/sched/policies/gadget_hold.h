// SPDX-License-Identifier: Apache-2.0
#pragma once

// When `gadget` goes on without searching again. Where utilities are linear, what a job's progress is worth changes little from slot to
// slot and in favour of those that run; so as long as no job comes or ends and no server changes, the rings that were found stay, and only
// every kSearchedEvery-th such slot is searched anew. That bounds how long waiting jobs wait for their age to be seen, and it lets the
// controller repeat a decision without asking: a held slot is a function of the problem alone, and the next ones are known to be held.
//
// A held decision has no bound, as a repeated one has none: nothing was searched.

#include "maypole/sched/decision.h"
#include "maypole/sched/slot_problem.h"

#include <cstdint>

namespace maypole::sched::gadget {

inline constexpr std::int64_t kSearchedEvery = 8;

/// Whether this slot is held.
[[nodiscard]] bool is_held(const SlotProblem& problem);
/// How many of the slots after this one are held, if nothing happens before them.
[[nodiscard]] std::int64_t held_after(const SlotProblem& problem);
/// Every running job goes on as it is.
[[nodiscard]] Decision hold(const SlotProblem& problem);

}  // namespace maypole::sched::gadget
