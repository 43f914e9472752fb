// SPDX-License-Identifier: Apache-2.0
#pragma once

// Algorithm 2, fourth step: M_i, the weighted mappings of every job.
//
// A solution by column generation consists of mappings already: what is left is to drop those without weight and to see that no job's
// weights exceed 1. A solution of the whole formulation is taken apart by following positive flow (gadget_paper_full_lp.h). With several
// resource types one decomposition serves all: a placement takes all types at once, and the intersection of the paper means that a host
// must hold a worker in every type (PaperJob::host).

#include "maypole/sched/policies/gadget_paper_slot.h"

namespace maypole::sched {

/// Mappings with a weight above 1e-9; weights of a job that sum to more than 1 (by rounding) are scaled back to 1.
[[nodiscard]] WeightedMappings weighted_mappings(WeightedMappings columns);

}  // namespace maypole::sched
