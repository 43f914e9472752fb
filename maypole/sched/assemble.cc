// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/assemble.h"

#include "maypole/base/check.h"

#include <algorithm>

namespace maypole::sched {

Decision assemble(const SlotProblem& problem, std::vector<std::optional<model::Embedding>> embeddings) {
  MAYPOLE_CHECK_EQ(embeddings.size(), problem.jobs.size());
  Decision decision;
  decision.slot = problem.slot;
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    if (!embeddings[i]) {
      continue;
    }
    const ActiveJob& job = problem.jobs[i];
    const bool resized = job.running() && job.current->ring != embeddings[i]->ring;
    const double progress = slot_progress(job, model::shape_of(*embeddings[i]), resized, problem.slot_s);
    decision.utility += utility_gain(job, progress, problem.start_s());
    decision.placements.push_back({job.id, *std::move(embeddings[i])});
  }
  std::ranges::sort(decision.placements, {}, &Placement::job);
  return decision;
}

}  // namespace maypole::sched
