// SPDX-License-Identifier: Apache-2.0
#pragma once

// Algorithm 2, third step: the augmented LP over the chosen rings, by column generation.
//
// The paper binds O(|V_s|) copies of the flow formulation so that its solutions can be taken apart into closed rings (the whole of it is in
// gadget_paper_full_lp.h). A solution of it is a convex combination of valid mappings, so the same optimum is that of
//   maximise   sum_i sum_omega pi_{i,kappa_i} phi_i^omega
//   subject to sum_omega phi_i^omega <= 1 for every job; loads within every server and link
// over all closed walks omega of kappa_i ring nodes. Pricing: a walk costs the prices of its hosts and links, none negative, so the
// cheapest one puts all nodes on the cheapest allowed host and uses no link. The program has therefore many optima. Which one is taken is
// not said in the paper; here the first columns are rings that would fit an empty cluster (one around every root server, the nearest
// servers first), and walks on one host, which may not fit, enter only where the optimum needs them.

#include "maypole/sched/decision.h"
#include "maypole/sched/policies/gadget_paper_slot.h"

namespace maypole::sched {

struct PaperAugmented {
  double value = 0;
  WeightedMappings mappings;  // [job]: the columns with their weights as the simplex left them
  bool solved = true;         // false: the limit of pivots cut it; the weights are still those of a feasible point, or empty
};

/// `sizes`: kappa_i, [job]; 0: the job is not offered.
[[nodiscard]] PaperAugmented solve_augmented_lp(const PaperSlot& slot, const std::vector<int>& sizes, std::int64_t max_pivots, Work& work);

/// The ring of `size` nodes around `root` that fits an empty cluster: as many as fit on the root, then on servers of its rack and then on
/// all others, those that hold most first. Empty ring where there is none.
[[nodiscard]] model::Embedding ring_around(const PaperSlot& slot, std::size_t job, int size, model::ServerId root);

}  // namespace maypole::sched
