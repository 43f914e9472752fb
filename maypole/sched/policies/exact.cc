// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact.h"

#include <fmt/format.h>

#include <algorithm>

namespace maypole::sched {

Decision Exact::decide(const SlotProblem& problem, base::Rng& /*rng*/) {
  const ExactProblem exact = make_exact_problem(problem);
  const ExactAnswer answer = solve_exactly(exact, limits_);
  Decision decision;
  decision.slot = problem.slot;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    if (const std::optional<ExactColumn>& column = answer.choice.of_job[j]) {
      decision.placements.push_back({problem.jobs[j].id, embedding_of(exact, *column)});
    }
  }
  std::ranges::sort(decision.placements, {}, &Placement::job);
  decision.utility = answer.choice.gain;
  decision.limited = !answer.proven;
  decision.work = answer.work;
  decision.note = fmt::format("{} nodes", answer.nodes);
  if (answer.proven || !exact.tree.empty()) {  // else the list of columns may be cut, and the bound is one on that list only
    decision.bound = answer.bound;
    decision.gap = answer.bound > 0 ? (answer.bound - answer.choice.gain) / answer.bound : 0;
  }
  return decision;
}

std::unique_ptr<Policy> make_exact(const PolicyOptions& options) {
  return std::make_unique<Exact>(ExactLimits{.nodes = options.exact_nodes});
}

}  // namespace maypole::sched
