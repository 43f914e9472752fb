// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_hold.h"

#include <algorithm>

namespace maypole::sched::gadget {

namespace {

bool may_hold(const SlotProblem& problem) {
  return std::ranges::all_of(problem.jobs, [](const ActiveJob& active) {
    const bool waits_for_racks = !active.running() && active.job->max_racks > 0 && active.job->max_racks_s > 0;  // soon it may have more
    return active.job->utility.kind == model::UtilityKind::kLinear && !waits_for_racks;
  });
}

}  // namespace

bool is_held(const SlotProblem& problem) { return problem.unchanged_slots % kSearchedEvery != 0 && may_hold(problem); }

std::int64_t held_after(const SlotProblem& problem) {
  return may_hold(problem) ? kSearchedEvery - 1 - problem.unchanged_slots % kSearchedEvery : 0;
}

Decision hold(const SlotProblem& problem) {
  Decision decision;
  decision.slot = problem.slot;
  for (const ActiveJob& active : problem.jobs) {
    if (active.running()) {
      const double progress = slot_progress(active, model::shape_of(*active.current), /*resized=*/false, problem.slot_s);
      decision.utility += utility_gain(active, progress, problem.start_s());
      decision.placements.push_back({active.id, *active.current});
    }
  }
  std::ranges::sort(decision.placements, {}, &Placement::job);
  return decision;
}

}  // namespace maypole::sched::gadget
