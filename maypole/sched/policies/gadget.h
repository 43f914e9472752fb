// SPDX-License-Identifier: Apache-2.0
#pragma once

// `gadget`, the policy that runs real clusters, and `gadget-blind`, the same without knowing how long a job is.
//
// Each slot by itself, from the problem alone (nothing is kept between slots, so a dumped slot repeats bit for bit):
//   1. what each number of workers is worth to each job, looking ahead               gadget_candidate.h, concave_hull.h
//   2. prices of the resources, as if only totals counted; this is `bound_lp`         gadget_pooled.h
//   3. greedy: running rings that are worth their price stay, others take the ring
//      that is worth most after its price, what is left goes by marginal utility      gadget_greedy.h, gadget_builder.h
//   4. where that is not near the bound, in small clusters: columns, their rounding     gadget_columns.h
//      in large ones: prices by class of server, and the greedy again under them       gadget_classes.h
//   5. local search                                                                     gadget_search.h
//   6. workers above a minimum go to jobs that wait, where that loses nothing             gadget_give_back.h
// Slots in which nothing came or ended go on as they are, where utilities are linear       gadget_hold.h
//
// gadget-blind does not see `work`; a `budget` it does, as a limit and as the reach of a convex utility. For `linear` utilities it weighs
// progress by what jobs that have ended say about one that has had so much service (gadget_service_index.h).

#include "maypole/sched/policy.h"

#include <memory>

namespace maypole::sched {

[[nodiscard]] std::unique_ptr<Policy> make_gadget(const PolicyOptions& options);
[[nodiscard]] std::unique_ptr<Policy> make_gadget_blind(const PolicyOptions& options);

}  // namespace maypole::sched
