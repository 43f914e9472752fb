// SPDX-License-Identifier: Apache-2.0
#pragma once

// Algorithm 2, second step: LP-based ring selection. Of the sizes that the relaxation uses, each job keeps the one with the largest
// pi_{i,k} chi-bar_{i,k}.

#include "maypole/sched/policies/gadget_paper_relaxation.h"

namespace maypole::sched {

/// kappa_i of every job, [job]; 0 where rho-bar_i = 0. Ties go to the smaller ring.
[[nodiscard]] std::vector<int> select_rings(const PaperSlot& slot, const PaperRelaxation& relaxation);

}  // namespace maypole::sched
