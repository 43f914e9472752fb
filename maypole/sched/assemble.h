// SPDX-License-Identifier: Apache-2.0
#pragma once

// From embeddings to a decision: order and utility.

#include "maypole/sched/decision.h"
#include "maypole/sched/slot_problem.h"

#include <optional>

namespace maypole::sched {

/// The decision that gives problem.jobs[i] the ring embeddings[i], or nothing.
[[nodiscard]] Decision assemble(const SlotProblem& problem, std::vector<std::optional<model::Embedding>> embeddings);

}  // namespace maypole::sched
