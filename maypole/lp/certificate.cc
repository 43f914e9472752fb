// SPDX-License-Identifier: Apache-2.0
#include "maypole/lp/certificate.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <algorithm>
#include <cmath>

namespace maypole::lp {

namespace {

// How far `value` lies outside [lower, upper], relative to the bound that it breaks.
double outside(double value, double lower, double upper) {
  if (std::isnan(value)) {
    return kInfinity;
  }
  if (value < lower) {
    return (lower - value) / (1 + std::abs(lower));
  }
  return value > upper ? (value - upper) / (1 + std::abs(upper)) : 0;
}

// Greatest value of multiplier * v over lower <= v <= upper.
double support(double multiplier, double lower, double upper) {
  if (multiplier == 0) {
    return 0;
  }
  return multiplier * (multiplier > 0 ? upper : lower);
}

// The same, with multipliers of at most `dust` on an infinite side taken for 0.
double support(double multiplier, double lower, double upper, double dust) {
  const double value = support(multiplier, lower, upper);
  return value == kInfinity && std::abs(multiplier) <= dust ? 0 : value;
}

double dual_bound_within(const LinearProgram& program, const base::IdVector<RowId, double>& duals, double dust) {
  double bound = 0;
  for (std::size_t i = 0; i < program.num_rows(); ++i) {
    const auto id = RowId::from_index(i);
    bound += support(duals[id], program.row(id).lower, program.row(id).upper, dust);
  }
  const base::IdVector<ColumnId, double> reduced = reduced_costs(program, duals);
  for (std::size_t j = 0; j < program.num_columns(); ++j) {
    const auto id = ColumnId::from_index(j);
    bound += support(reduced[id], program.column(id).lower, program.column(id).upper, dust);
  }
  return std::isnan(bound) ? kInfinity : bound;
}

// The row that prices the column out at the smallest cost, and the multiplier that it needs more; invalid where there is none.
std::pair<RowId, double> cheapest_row(const LinearProgram& program, const Column& column, double reduced) {
  std::pair<RowId, double> best;
  double best_cost = kInfinity;
  for (const Term& term : column.terms) {
    // d_j falls by a_ij per unit of y_i, so y_i must move by reduced / a_ij.
    const double step = reduced / term.coefficient;
    const double cost = support(step, program.row(term.row).lower, program.row(term.row).upper);
    if (cost < best_cost) {
      best = {term.row, step};
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace

double primal_violation(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal) {
  double worst = 0;
  for (std::size_t j = 0; j < program.num_columns(); ++j) {
    const auto id = ColumnId::from_index(j);
    worst = std::max(worst, outside(primal[id], program.column(id).lower, program.column(id).upper));
  }
  const base::IdVector<RowId, double> activity = row_activity(program, primal);
  for (std::size_t i = 0; i < program.num_rows(); ++i) {
    const auto id = RowId::from_index(i);
    worst = std::max(worst, outside(activity[id], program.row(id).lower, program.row(id).upper));
  }
  return worst;
}

double dual_bound(const LinearProgram& program, const base::IdVector<RowId, double>& duals) {
  MAYPOLE_CHECK_EQ(duals.size(), program.num_rows());
  return dual_bound_within(program, duals, 0);
}

double repaired_dual_bound(const LinearProgram& program, base::IdVector<RowId, double> duals) {
  MAYPOLE_CHECK_EQ(duals.size(), program.num_rows());
  for (std::size_t i = 0; i < program.num_rows(); ++i) {
    const auto id = RowId::from_index(i);
    if (!std::isfinite(support(duals[id], program.row(id).lower, program.row(id).upper))) {
      duals[id] = 0;
    }
  }
  double bound = dual_bound(program, duals);
  // Raising one multiplier may unsettle another column, so a few passes; each ends with an honest evaluation.
  constexpr int kPasses = 4;
  for (int pass = 0; pass < kPasses && bound == kInfinity; ++pass) {
    for (const Column& column : program.columns()) {
      double reduced = column.objective;
      for (const Term& term : column.terms) {
        reduced -= term.coefficient * duals[term.row];
      }
      if (support(reduced, column.lower, column.upper) < kInfinity) {
        continue;
      }
      const auto [row, step] = cheapest_row(program, column, reduced);
      if (!row.valid()) {
        return kInfinity;
      }
      // A little beyond, so that rounding does not leave the reduced cost on the wrong side of 0.
      duals[row] += step * (1 + 1e-12);
    }
    bound = std::min(bound, dual_bound(program, duals));
  }
  return bound;
}

absl::Status check_optimal(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal,
                           const base::IdVector<RowId, double>& duals, double tolerance) {
  if (primal.size() != program.num_columns() || duals.size() != program.num_rows()) {
    return base::error(absl::StatusCode::kInvalidArgument, "the answer has {} columns and {} rows, the program {} and {}", primal.size(),
                       duals.size(), program.num_columns(), program.num_rows());
  }
  const double violation = primal_violation(program, primal);
  if (!(violation <= tolerance)) {
    return base::error(absl::StatusCode::kInvalidArgument, "the point breaks a bound by {:g} (relative)", violation);
  }
  const double objective = objective_value(program, primal);
  const double bound = dual_bound_within(program, duals, tolerance);
  if (!(std::abs(bound - objective) <= tolerance * (1 + std::abs(objective)))) {
    return base::error(absl::StatusCode::kInvalidArgument, "the point is worth {:.12g}, the multipliers prove {:.12g}", objective, bound);
  }
  return absl::OkStatus();
}

absl::Status check_infeasible(const LinearProgram& program, const base::IdVector<RowId, double>& ray, double tolerance) {
  if (ray.size() != program.num_rows()) {
    return base::error(absl::StatusCode::kInvalidArgument, "the ray has {} rows, the program {}", ray.size(), program.num_rows());
  }
  double largest = 0;
  for (const double value : ray) {
    largest = std::max(largest, std::abs(value));
  }
  // A column whose bounds contradict each other needs no rows.
  for (const Column& column : program.columns()) {
    if (column.lower > column.upper) {
      return absl::OkStatus();
    }
  }
  const double dust = tolerance * largest;
  double allowed = 0;  // by the rows, at most
  double scale = 0;
  for (std::size_t i = 0; i < program.num_rows(); ++i) {
    const auto id = RowId::from_index(i);
    const double value = support(ray[id], program.row(id).lower, program.row(id).upper, dust);
    allowed += value;
    scale += std::abs(value);
  }
  base::IdVector<ColumnId, double> weight(program.num_columns(), 0.0);
  double needed = 0;  // by the columns, at least
  for (std::size_t j = 0; j < program.num_columns(); ++j) {
    const auto id = ColumnId::from_index(j);
    const Column& column = program.column(id);
    for (const Term& term : column.terms) {
      weight[id] += term.coefficient * ray[term.row];
    }
    const double value = support(-weight[id], column.lower, column.upper, dust);
    needed -= value;
    scale += std::abs(value);
  }
  if (!(needed - allowed > tolerance * scale) || largest == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "the ray proves nothing: columns need {:.12g}, rows allow {:.12g}", needed,
                       allowed);
  }
  return absl::OkStatus();
}

absl::Status check_unbounded(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal,
                             const base::IdVector<ColumnId, double>& ray, double tolerance) {
  if (primal.size() != program.num_columns() || ray.size() != program.num_columns()) {
    return base::error(absl::StatusCode::kInvalidArgument, "point and ray have {} and {} columns, the program {}", primal.size(),
                       ray.size(), program.num_columns());
  }
  const double violation = primal_violation(program, primal);
  if (!(violation <= tolerance)) {
    return base::error(absl::StatusCode::kInvalidArgument, "the point breaks a bound by {:g} (relative)", violation);
  }
  // Moving along the ray must break no finite bound: the ray is feasible in the program whose finite bounds are 0.
  const auto breaks = [&](double value, double lower, double upper) {
    return (value < -tolerance && lower > -kInfinity) || (value > tolerance && upper < kInfinity);
  };
  for (std::size_t j = 0; j < program.num_columns(); ++j) {
    const auto id = ColumnId::from_index(j);
    if (breaks(ray[id], program.column(id).lower, program.column(id).upper)) {
      return base::error(absl::StatusCode::kInvalidArgument, "column {} has a bound along the ray", j);
    }
  }
  const base::IdVector<RowId, double> activity = row_activity(program, ray);
  for (std::size_t i = 0; i < program.num_rows(); ++i) {
    const auto id = RowId::from_index(i);
    if (breaks(activity[id], program.row(id).lower, program.row(id).upper)) {
      return base::error(absl::StatusCode::kInvalidArgument, "row {} has a bound along the ray", i);
    }
  }
  if (const double gain = objective_value(program, ray); !(gain > tolerance)) {
    return base::error(absl::StatusCode::kInvalidArgument, "the ray gains {:g} only", gain);
  }
  return absl::OkStatus();
}

}  // namespace maypole::lp
