// SPDX-License-Identifier: Apache-2.0
#pragma once

// Judges answers of a solver from the program's numbers alone. Nothing here knows how the answer was found.
//
// Optimality. x is feasible and, for any y, the dual bound
//     bound(y) = sum_i max(y_i U_i, y_i L_i) + sum_j max over l_j <= x_j <= u_j of d_j x_j,   d_j = c_j - sum_i a_ij y_i
// is no smaller than any feasible point's objective (weak duality: c x = y A x + d x). Where objective(x) = bound(y), both are optimal.
//
// Infeasibility. y is a Farkas certificate where the greatest value of y A x that the rows allow is smaller than the least that the
// columns' bounds allow.
//
// Unboundedness. x feasible, and a direction r with c r > 0 along which every bound of rows and columns stays kept for ever.

#include "maypole/lp/linear_program.h"

#include <absl/status/status.h>

namespace maypole::lp {

/// Largest violation of a row or column bound at x, relative to 1 + |bound|; 0 where x is feasible.
[[nodiscard]] double primal_violation(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal);

/// bound(y) as above; +infinity where y gives none (a term with an infinite bound on the wrong side).
[[nodiscard]] double dual_bound(const LinearProgram& program, const base::IdVector<RowId, double>& duals);

/// A valid bound from any multipliers: those whose side is infinite are set to 0, then columns that an infinite bound leaves without a
/// bound are priced out by raising the multiplier of their cheapest row (the one with the smallest finite |bound| per unit that they
/// use). Returns the smallest of the bounds met on the way; +infinity where no multiplier of one row can price a column out.
[[nodiscard]] double repaired_dual_bound(const LinearProgram& program, base::IdVector<RowId, double> duals);

/// Ok where x is feasible within `tolerance` (relative to 1 + |bound|) and objective(x) reaches bound(y) within `tolerance` (relative to
/// 1 + |objective|). Multipliers and reduced costs of less than `tolerance` on an infinite side count as 0: a solver's duals have such
/// dust.
[[nodiscard]] absl::Status check_optimal(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal,
                                         const base::IdVector<RowId, double>& duals, double tolerance = 1e-7);

/// Ok where y proves that no point is feasible. Multipliers on an infinite side below `tolerance` times the largest count as 0.
[[nodiscard]] absl::Status check_infeasible(const LinearProgram& program, const base::IdVector<RowId, double>& ray,
                                            double tolerance = 1e-9);

/// Ok where the feasible x and the direction r prove that the objective has no limit.
[[nodiscard]] absl::Status check_unbounded(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal,
                                           const base::IdVector<ColumnId, double>& ray, double tolerance = 1e-7);

}  // namespace maypole::lp
