// SPDX-License-Identifier: Apache-2.0
#pragma once

// The LP relaxation of (12). It does not see where capacity is, nor links: a ring may lie on fractions of servers without leaving any of
// them, so with the concave hull of each job's value over its workers it is a knapsack over the cluster's totals:
//
//   maximise sum_i h_i(w_i)  subject to  sum_i l_i^r w_i <= C^r for every resource r,  0 <= w_i <= limit_i
//
// Where one resource binds, that is filling segments of the hulls in order of value per unit of it. Else it is solved as a linear
// program with one row a resource.

#include "maypole/sched/decision.h"
#include "maypole/sched/policies/gadget_candidate.h"

#include <cstdint>
#include <vector>

namespace maypole::sched::gadget {

struct PooledBound {
  double value = 0;       // no solution of the slot's problem is worth more
  model::Amounts prices;  // [resource] per unit: duals that prove it
};

[[nodiscard]] PooledBound pooled_bound(const model::Cluster& cluster, const std::vector<Candidate>& candidates, std::int64_t max_pivots,
                                       Work& work);

}  // namespace maypole::sched::gadget
