// SPDX-License-Identifier: Apache-2.0
#pragma once

// Algorithm 2, first step: the LP relaxation of (12).
//
// Its flows cost nothing: if every node of a ring is placed on the servers in the same fractions, the right sides of (15) are 0 and no
// link is used. So (15), (17) and (19) drop out. What is left is a fractional knapsack per class of servers whose capacities are
// proportional to each other: within a class, spreading by capacity fills all its servers alike, so only the class's sums bind. With
//   s_{i,k,c} = (1/k) sum_a sum_{u in c} rho^u_{i,k,a}      (share of ring k of job i that is in class c)
// the program is
//   maximise   sum_i sum_k pi_{i,k} chi_{i,k},    chi_{i,k} = sum_c s_{i,k,c}
//   subject to sum_k chi_{i,k} <= 1                                           every job
//              sum_i sum_k k l_i^r s_{i,k,c} <= sum_{u in c} g_s^{u,r}        every class and resource
// Every solution of (12)-(19) gives one of this program by the definition of s, and spreading leads back; the values are equal. (The
// tests compare with the whole formulation, gadget_paper_full_lp.h.)

#include "maypole/sched/decision.h"
#include "maypole/sched/policies/gadget_paper_slot.h"

namespace maypole::sched {

struct PaperRelaxation {
  double value = 0;
  std::vector<std::vector<double>> sizes;  // [job][k]: chi-bar_{i,k}
  bool solved = true;                      // false: the limit of pivots cut it, and `value` is a bound only
};

[[nodiscard]] PaperRelaxation relax_paper_slot(const PaperSlot& slot, std::int64_t max_pivots, Work& work);

}  // namespace maypole::sched
