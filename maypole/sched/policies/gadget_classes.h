// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bound of a large cluster. One price for every server and link would be too many; servers of one class (equal capacities, equal
// links) share theirs, and so do all racks. Added over a class, the rows of gadget_columns.h read
//
//   sum over jobs (workers on servers of class k) l^r  <= what the class has of resource r
//   sum over jobs b (servers of class k crossed)       <= what can leave and enter the class's servers, one by one, added up
//   sum over jobs with b > half of a server's          <= number of servers in the class
//   sum over jobs b (racks crossed)                    <= what can leave and enter the racks, added up
//
// and any solution of the slot satisfies them. A job's best ring under such prices is a knapsack over (class, workers on one server of
// it), unlimited in servers, each class as large as its largest member: no less than the best ring that fits alone on the empty cluster.
// So bound(y) of gadget_columns.h holds for any y >= 0; y is improved by subgradient steps of Polyak's length.
//
// Complexity: a step costs O(jobs W K c), W workers, K classes, c workers on one server; the number of servers does not enter.

#include "maypole/sched/policies/gadget_builder.h"

namespace maypole::sched::gadget {

struct ClassBound {
  double bound = 0;
  Prices prices;  // that prove it
  bool limited = false;
};

struct ClassLimits {
  std::int64_t steps = 0;
  std::int64_t max_columns = 0;  // Work::columns in all
  double enough = 0;             // stop when the bound is at most that
};

/// `solution`: value of a solution that is known.
[[nodiscard]] ClassBound class_bound(const Topology& topology, const std::vector<Candidate>& candidates, double solution,
                                     const model::Amounts& pooled_prices, const ClassLimits& limits, Work& work);

}  // namespace maypole::sched::gadget
