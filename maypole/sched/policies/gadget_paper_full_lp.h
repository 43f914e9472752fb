// SPDX-License-Identifier: Apache-2.0
#pragma once

// The paper's linear programs written out, for small cases: what gadget_paper_relaxation.h and gadget_paper_augmented_lp.h solve in
// shorter forms is compared with these. At 40 jobs of the paper's setting the second one would have 830,000 columns.

#include "maypole/sched/policies/gadget_paper_slot.h"

namespace maypole::sched {

/// Optimum of the LP relaxation of (12)-(19), with every variable of the paper: chi_{i,k}, rho^u_{i,k,a} and theta^{u,v}_{i,k,a,b}.
[[nodiscard]] double full_relaxation(const PaperSlot& slot);

/// The augmented LP of Algorithm 2, which the paper does not write out: per job one copy of the layered graph for each host w of ring node
/// 0. In copy w a unit of flow starts at (layer 0, w), moves within layer l over links (variables f) or from layer l to l+1 at a node
/// (variables g: ring node l+1 is placed there), and ends at (layer kappa, w), so that it closes. Solved, and taken apart into weighted
/// mappings by following positive flow from each start. A mapping may visit a server several times.
struct FullAugmented {
  double value = 0;
  WeightedMappings mappings;     // [job]
  std::vector<double> embedded;  // [job]: x_i, what the mappings' weights sum to
};
[[nodiscard]] FullAugmented full_augmented_lp(const PaperSlot& slot, const std::vector<int>& sizes);

}  // namespace maypole::sched
