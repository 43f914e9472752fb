// SPDX-License-Identifier: Apache-2.0
#pragma once

// What drf and optimus share: workers are given one after the other, each to the job that the rule finds most urgent, first its
// min_workers at once and then one by one to its limit. The whole is re-decided in every slot.
//
//   1. Targets: the rule applied to what all servers hold together.
//   2. Running jobs keep their rings. Jobs below their target, the most urgent first, take what is free, then what others have above
//      theirs, and only where that helps; a ring changes by the workers that it gains or loses, not as a whole.
//   3. Where a job still has nothing although it has a target, everything is placed anew, the largest first, if that starts more jobs.
//   4. What is left over goes on by the rule, targets or not.

#include "maypole/sched/decision.h"
#include "maypole/sched/ring_placement.h"
#include "maypole/sched/slot_problem.h"

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace maypole::sched {

/// Lower goes first: a tier, then a number within it.
using Urgency = std::pair<int, double>;
/// How urgent the next worker (or min_workers) of problem.jobs[i] is, when it has `workers`; none: it wants no more.
using ElasticRule = std::function<std::optional<Urgency>(std::size_t i, int workers)>;

/// Workers of each job by the rule, of what all servers hold together: [position in problem.jobs].
[[nodiscard]] std::vector<int> pooled_targets(const SlotProblem& problem, const ElasticRule& rule);

[[nodiscard]] Decision decide_elastic(const SlotProblem& problem, const ElasticRule& rule, RingStyle style);

/// Whether decide_elastic() would leave the decision as it is in the next slot too, if the rule did not change: every job has its target,
/// or none can have more or less than its minimum; and none that could use more is held back by what time or less room may lift (a limit of
/// racks, reservations).
[[nodiscard]] bool is_settled(const SlotProblem& problem, const Decision& decision, std::span<const int> targets);
/// Workers of each job: [position in problem.jobs].
[[nodiscard]] std::vector<int> workers_by_position(const SlotProblem& problem, const Decision& decision);

}  // namespace maypole::sched
