// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lifted cover inequalities of a link: jobs that together need more bandwidth than it has cannot all cross it.
//
// z_i says whether job i crosses the link. A cover C has sum of b_i over C > capacity, so that sum over C of z_i <= |C| - 1; every other
// job j gets the largest coefficient that keeps this valid, one after the other, by a knapsack program (coefficients are small integers).
// For the pricing a cover is a further price on the crossing of that link, one of each job.

#include <optional>
#include <span>
#include <vector>

namespace maypole::sched {

struct Cover {
  std::vector<double> coefficients;  // [job]
  double right = 0;
};

/// The cover that z violates most among those found greedily; none where all hold within 1e-4. bandwidth[i] = 0: job i loads no link.
[[nodiscard]] std::optional<Cover> separate_cover(std::span<const double> bandwidth, double capacity, std::span<const double> z);

}  // namespace maypole::sched
