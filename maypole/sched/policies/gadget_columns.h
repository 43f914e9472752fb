// SPDX-License-Identifier: Apache-2.0
#pragma once

// The slot's problem as a packing of whole rings, and its bound by column generation.
//
//   maximise  sum_c v_c x_c
//   subject to  sum over the columns c of job i: x_c <= 1                                   every job i
//               sum_c (workers of c on s) l^r x_c <= C_s^r                                  every server s and resource r
//               sum over the columns that cross v: b x_c <= what can leave and enter v      every node v of the cut tree
//               sum over those with b > half of that: x_c <= 1                              every node v
//
// A column is a ring of job i that fits on the empty cluster, or the ring that it has. Without that demand a ring may lie on fractions
// of servers that cannot hold it (gadget_pooled.h), and the bound is no better than the pooled one. The last rows hold for whole rings
// only: two that each take more than half of a link do not share it.
//
// In a general graph of few servers the last two rows are those of every directed link, and columns carry their paths
// (gadget_walks.h). Columns are priced exactly by gadget_pricer.h, closed walks from below. For any prices y >= 0
//     bound(y) = sum of y over the right sides + sum_i max(0, best of job i after prices)
// is no smaller than the value of any solution (Lagrange), so the bound holds wherever the generation is cut short.

#include "maypole/sched/policies/gadget_builder.h"

#include <cstdint>
#include <vector>

namespace maypole::sched::gadget {

struct WeightedRing {
  Ring ring;  // without paths, unless kept
  double weight = 0;
};

struct ColumnBound {
  double bound = 0;
  double master = 0;                              // optimum over the columns found
  Prices prices;                                  // that prove the bound
  std::vector<std::vector<WeightedRing>> chosen;  // [job]: columns with weight in the master's optimum
  bool limited = false;
};

struct ColumnLimits {
  std::int64_t max_pivots = 0;
  std::int64_t max_columns = 0;  // Work::columns in all
  double gap = 1e-4;             // stop when bound and master are as near
  double enough = 0;             // stop when the bound is at most that
};

/// `start`: rings of a solution, [job].
[[nodiscard]] ColumnBound column_bound(const Topology& topology, const std::vector<Candidate>& candidates, const std::vector<Ring>& start,
                                       const model::Amounts& pooled_prices, const ColumnLimits& limits, Work& work);

}  // namespace maypole::sched::gadget
