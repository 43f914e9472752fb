// SPDX-License-Identifier: Apache-2.0
#include "maypole/lp/solver.h"

#include "maypole/base/rng.h"
#include "maypole/base/status.h"
#include "maypole/lp/certificate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>

namespace maypole::lp {
namespace {

constexpr std::int64_t kNoLimit = 1'000'000;

using Point = base::IdVector<ColumnId, double>;

void expect_proved(const Solver& solver) {
  const Solution& solution = solver.solution();
  absl::Status status;
  switch (solution.status) {
    case SolveStatus::kOptimal:
      status = check_optimal(solver.program(), solution.primal, solution.duals);
      break;
    case SolveStatus::kInfeasible:
      status = check_infeasible(solver.program(), solution.infeasibility_ray);
      break;
    case SolveStatus::kUnbounded:
      status = check_unbounded(solver.program(), solution.primal, solution.unbounded_ray);
      break;
    case SolveStatus::kLimit:
      status = base::error(absl::StatusCode::kInternal, "no answer");
      break;
  }
  EXPECT_TRUE(status.ok()) << base::message(status);
}

TEST(SolverTest, SolvesATextbookProgramWithItsMultipliers) {
  Solver solver;
  const RowId first = solver.add_row({.upper = 4});
  const RowId second = solver.add_row({.upper = 7});
  solver.add_column({.objective = 3, .upper = 3, .terms = {{first, 1}, {second, 1}}});
  solver.add_column({.objective = 2, .terms = {{first, 1}, {second, 3}}});
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 11, 1e-9);
  EXPECT_NEAR(solver.solution().primal[ColumnId(0)], 3, 1e-9);
  EXPECT_NEAR(solver.solution().duals[first], 2, 1e-9);
  EXPECT_NEAR(solver.solution().duals[second], 0, 1e-9);
  EXPECT_NEAR(solver.solution().reduced[ColumnId(0)], 1, 1e-9);
  expect_proved(solver);
}

TEST(SolverTest, AFractionalKnapsackIsFilledByValuePerUnit) {
  Solver solver;
  const RowId knapsack = solver.add_row({.upper = 10});
  for (const auto& [value, size] : {std::pair{6.0, 4.0}, {10.0, 5.0}, {3.0, 6.0}}) {
    solver.add_column({.objective = value, .upper = 1, .terms = {{knapsack, size}}});
  }
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 10 + 6 + 3.0 / 6, 1e-9);
  EXPECT_NEAR(solver.solution().duals[knapsack], 0.5, 1e-9);
  expect_proved(solver);
}

TEST(SolverTest, TermsOfOneRowAreSummed) {
  Solver solver;
  const RowId row = solver.add_row({.upper = 6});
  const ColumnId column = solver.add_column({.objective = 1, .terms = {{row, 1}, {row, 2}}});
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().primal[column], 2, 1e-9);
  solver.add_row({.upper = 3}, std::array{RowTerm{column, 1}, RowTerm{column, 2}});
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().primal[column], 1, 1e-9);
  expect_proved(solver);
}

TEST(SolverTest, GrowsByColumnsRowsAndBoundsAndStaysRight) {
  Solver solver;
  const RowId capacity = solver.add_row({.upper = 10});
  const ColumnId first = solver.add_column({.objective = 1, .terms = {{capacity, 1}}});
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 10, 1e-9);

  const ColumnId second = solver.add_column({.objective = 3, .upper = 2, .terms = {{capacity, 2}}});  // 1.5 a unit
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 6 + 6, 1e-9);
  expect_proved(solver);

  const RowId cut = solver.add_row({.upper = 5}, std::array{RowTerm{first, 1}, RowTerm{second, 1}});
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 3 + 6, 1e-9);
  expect_proved(solver);

  solver.set_column_bounds(second, 0, 1);
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 4 + 3, 1e-9);
  solver.set_row_bounds(cut, 5, 5);
  solver.set_objective(first, -1);
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 3 - 4, 1e-9);
  expect_proved(solver);
}

TEST(SolverTest, EmptyProgramsHaveAnswers) {
  Solver nothing;
  EXPECT_EQ(nothing.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_EQ(nothing.solution().objective, 0);

  Solver no_rows;
  no_rows.add_column({.objective = 2, .upper = 3});
  no_rows.add_column({.objective = -1, .lower = -4});
  ASSERT_EQ(no_rows.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(no_rows.solution().objective, 10, 1e-9);
  expect_proved(no_rows);

  Solver no_columns;
  no_columns.add_row({.lower = 1});
  EXPECT_EQ(no_columns.solve(kNoLimit), SolveStatus::kInfeasible);
  expect_proved(no_columns);

  Solver no_terms;
  no_terms.add_row({.lower = -1, .upper = 1});
  no_terms.add_column({.objective = -1, .lower = -kInfinity, .upper = -2});
  ASSERT_EQ(no_terms.solve(kNoLimit), SolveStatus::kUnbounded);
  expect_proved(no_terms);
}

TEST(SolverTest, InfeasibleProgramsComeWithAFarkasRay) {
  Solver solver;
  const RowId first = solver.add_row({.lower = 3});
  const RowId second = solver.add_row({.upper = 2});
  solver.add_column({.objective = 1, .terms = {{first, 1}, {second, 1}}});
  solver.add_column({.objective = 1, .terms = {{first, 2}, {second, 2}}});
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kInfeasible);
  expect_proved(solver);
  solver.set_row_bounds(first, 1, kInfinity);
  EXPECT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  expect_proved(solver);
  solver.set_row_bounds(first, 5, 4);
  EXPECT_EQ(solver.solve(kNoLimit), SolveStatus::kInfeasible);
  solver.set_row_bounds(first, 1, 4);
  solver.set_column_bounds(ColumnId(0), 2, 1);
  EXPECT_EQ(solver.solve(kNoLimit), SolveStatus::kInfeasible);
  expect_proved(solver);
}

TEST(SolverTest, UnboundedProgramsComeWithADirection) {
  Solver solver;
  const RowId row = solver.add_row({.upper = 1});
  solver.add_column({.objective = 1, .terms = {{row, 1}}});
  solver.add_column({.objective = 0, .terms = {{row, -1}}});
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kUnbounded);
  expect_proved(solver);
  solver.set_column_bounds(ColumnId(1), 0, 5);
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 6, 1e-9);
}

TEST(SolverTest, DegenerateProgramsEnd) {
  // Beale's example, on which the simplex cycles under the plainest rules: optimum 1/20.
  Solver solver;
  const RowId first = solver.add_row({.upper = 0});
  const RowId second = solver.add_row({.upper = 0});
  const RowId third = solver.add_row({.upper = 1});
  solver.add_column({.objective = 0.75, .terms = {{first, 0.25}, {second, 0.5}}});
  solver.add_column({.objective = -150, .terms = {{first, -60}, {second, -90}}});
  solver.add_column({.objective = 0.02, .terms = {{first, -0.04}, {second, -0.02}, {third, 1}}});
  solver.add_column({.objective = -6, .terms = {{first, 9}, {second, 3}}});
  ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
  EXPECT_NEAR(solver.solution().objective, 0.05, 1e-9);
  expect_proved(solver);
}

// An assignment of n to n: every vertex is degenerate.
LinearProgram assignment(int n, base::Rng& rng) {
  LinearProgram program;
  for (int i = 0; i < 2 * n; ++i) {
    program.add_row({.upper = 1});
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      program.add_column({.objective = rng.uniform(0, 1), .terms = {{RowId(i), 1}, {RowId(n + j), 1}}});
    }
  }
  return program;
}

TEST(SolverTest, TheLimitOfPivotsCutsAndTheNextSolveGoesOn) {
  base::Rng rng(7);
  const LinearProgram program = assignment(30, rng);
  Solver whole(program);
  ASSERT_EQ(whole.solve(kNoLimit), SolveStatus::kOptimal);
  expect_proved(whole);
  ASSERT_GT(whole.solution().pivots, 20);

  Solver cut(program);
  int solves = 0;
  while (cut.solve(10) == SolveStatus::kLimit) {
    ASSERT_LT(++solves, 1000);
    EXPECT_LE(cut.solution().pivots, 10);
    // A bound of unfinished duals is valid.
    EXPECT_GE(repaired_dual_bound(program, cut.solution().duals), whole.solution().objective - 1e-9);
  }
  EXPECT_GE(solves, 2);
  EXPECT_NEAR(cut.solution().objective, whole.solution().objective, 1e-9);
  Solver none(program);
  EXPECT_EQ(none.solve(0), SolveStatus::kLimit);
  EXPECT_EQ(none.solution().pivots, 0);
}

TEST(SolverTest, ObjectivesOfAnySizeAreSolved) {  // CLP itself ends the process from 1e25 on
  for (const double unit : {1e-12, 1.0, 1e14, 1e24, 1e26, 1e120, 1e300}) {
    SCOPED_TRACE(unit);
    Solver solver;
    const RowId knapsack = solver.add_row({.upper = 10});
    solver.add_column({.objective = 1, .upper = 1, .terms = {{knapsack, 4}}});
    ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
    solver.add_column({.objective = 8 * unit, .upper = 1, .terms = {{knapsack, 8}}});
    const ColumnId third = solver.add_column({.upper = 1, .terms = {{knapsack, 4}}});
    solver.set_objective(third, 2 * unit);
    ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
    EXPECT_NEAR(solver.solution().objective, unit < 1 ? 1 + 6 * unit : 9 * unit, 1e-9 * std::max(1.0, unit));
    EXPECT_TRUE(check_optimal(solver.program(), solver.solution().primal, solver.solution().duals).ok());
    solver.set_objective(third, 0);  // the scale stays, the answer follows
    ASSERT_EQ(solver.solve(kNoLimit), SolveStatus::kOptimal);
    EXPECT_NEAR(solver.solution().objective, unit < 1 ? 1 + 6 * unit : 8 * unit + 0.5, 1e-9 * std::max(1.0, unit));
  }
}

TEST(SolverTest, NumbersTooLargeForTheSolverGiveNoAnswerAndNoEnd) {
  Solver bound;
  bound.add_column({.objective = 1, .upper = 1, .terms = {{bound.add_row({.upper = 1e26}), 1}}});
  EXPECT_EQ(bound.solve(kNoLimit), SolveStatus::kLimit);
  EXPECT_EQ(bound.solution().duals.size(), 1u);
  EXPECT_EQ(bound.solution().primal.size(), 1u);
  Solver entry;
  entry.add_column({.objective = 1, .upper = 1, .terms = {{entry.add_row({.upper = 1}), 1e200}}});
  EXPECT_EQ(entry.solve(kNoLimit), SolveStatus::kLimit);
}

TEST(SolverTest, TheSameCallsGiveTheSameBits) {
  base::Rng rng(11);
  const LinearProgram program = assignment(20, rng);
  Solver first(program);
  Solver second(program);
  first.solve(kNoLimit);
  second.solve(kNoLimit);
  EXPECT_EQ(first.solution().primal, second.solution().primal);
  EXPECT_EQ(first.solution().duals, second.solution().duals);
  EXPECT_EQ(first.solution().pivots, second.solution().pivots);
}

// --- random programs against the enumeration of all vertices ---

// Solves the n x n system by elimination with pivoting; none where it is singular.
std::optional<std::vector<double>> solve_square(std::vector<std::vector<double>> matrix, std::vector<double> right) {
  const std::size_t n = right.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t best = k;
    for (std::size_t i = k + 1; i < n; ++i) {
      best = std::abs(matrix[i][k]) > std::abs(matrix[best][k]) ? i : best;
    }
    if (std::abs(matrix[best][k]) < 1e-9) {
      return std::nullopt;
    }
    std::swap(matrix[k], matrix[best]);
    std::swap(right[k], right[best]);
    for (std::size_t i = 0; i < n; ++i) {
      if (i != k) {
        const double factor = matrix[i][k] / matrix[k][k];
        for (std::size_t j = k; j < n; ++j) {
          matrix[i][j] -= factor * matrix[k][j];
        }
        right[i] -= factor * right[k];
      }
    }
  }
  for (std::size_t k = 0; k < n; ++k) {
    right[k] /= matrix[k][k];
  }
  return right;
}

// The best vertex: any n of the bounds of rows and columns, taken as equations. All columns have two finite bounds, so that the feasible
// set is bounded and the optimum is at a vertex; none: infeasible.
std::optional<double> best_vertex(const LinearProgram& program) {
  const std::size_t n = program.num_columns();
  std::vector<std::pair<std::vector<double>, double>> planes;
  for (std::size_t j = 0; j < n; ++j) {
    std::vector<double> unit(n, 0.0);
    unit[j] = 1;
    planes.emplace_back(unit, program.column(ColumnId::from_index(j)).lower);
    planes.emplace_back(unit, program.column(ColumnId::from_index(j)).upper);
  }
  for (std::size_t i = 0; i < program.num_rows(); ++i) {
    const auto row = RowId::from_index(i);
    std::vector<double> normal(n, 0.0);
    for (std::size_t j = 0; j < n; ++j) {
      for (const Term& term : program.column(ColumnId::from_index(j)).terms) {
        normal[j] += term.row == row ? term.coefficient : 0;
      }
    }
    for (const double bound : {program.row(row).lower, program.row(row).upper}) {
      if (std::isfinite(bound)) {
        planes.emplace_back(normal, bound);
      }
    }
  }
  std::optional<double> best;
  std::vector<std::size_t> chosen;
  const auto visit = [&](auto&& self, std::size_t next) -> void {
    if (chosen.size() == n) {
      std::vector<std::vector<double>> matrix;
      std::vector<double> right;
      for (const std::size_t plane : chosen) {
        matrix.push_back(planes[plane].first);
        right.push_back(planes[plane].second);
      }
      if (const auto solved = solve_square(matrix, right)) {
        Point point;
        for (const double value : *solved) {
          point.push_back(value);
        }
        if (primal_violation(program, point) < 1e-9) {
          best = std::max(best.value_or(-kInfinity), objective_value(program, point));
        }
      }
      return;
    }
    for (std::size_t plane = next; plane < planes.size(); ++plane) {
      chosen.push_back(plane);
      self(self, plane + 1);
      chosen.pop_back();
    }
  };
  visit(visit, 0);
  return best;
}

LinearProgram random_program(base::Rng& rng) {
  LinearProgram program;
  const auto num_columns = static_cast<std::size_t>(rng.uniform_int(1, 4));
  const auto num_rows = static_cast<std::size_t>(rng.uniform_int(1, 4));
  for (std::size_t i = 0; i < num_rows; ++i) {
    Row row;
    const double middle = static_cast<double>(rng.uniform_int(-3, 3));
    const auto kind = rng.uniform_int(0, 3);
    row.lower = kind == 0 ? -kInfinity : middle;
    row.upper = kind == 1 ? kInfinity : kind == 2 ? middle : middle + static_cast<double>(rng.uniform_int(0, 3));
    program.add_row(row);
  }
  for (std::size_t j = 0; j < num_columns; ++j) {
    Column column;
    column.objective = static_cast<double>(rng.uniform_int(-4, 4));  // small integers: ties and degenerate vertices are common
    column.lower = static_cast<double>(rng.uniform_int(-2, 1));
    column.upper = column.lower + static_cast<double>(rng.uniform_int(0, 3));
    for (std::size_t i = 0; i < num_rows; ++i) {
      if (rng.uniform() < 0.7) {
        column.terms.push_back({RowId::from_index(i), static_cast<double>(rng.uniform_int(-3, 3))});
      }
    }
    program.add_column(std::move(column));
  }
  return program;
}

TEST(SolverTest, RandomProgramsAgreeWithTheBestVertex) {
  base::Rng rng(2026);
  int infeasible = 0;
  for (int round = 0; round < 1500; ++round) {
    SCOPED_TRACE(round);
    const LinearProgram program = random_program(rng);
    const std::optional<double> best = best_vertex(program);
    Solver solver(program);
    const SolveStatus status = solver.solve(kNoLimit);
    expect_proved(solver);
    if (best) {
      ASSERT_EQ(status, SolveStatus::kOptimal);
      EXPECT_NEAR(solver.solution().objective, *best, 1e-7);
    } else {
      ++infeasible;
      ASSERT_EQ(status, SolveStatus::kInfeasible);
    }
    // The same program grown row by row and column by column, with solves in between.
    Solver grown;
    for (const Row& row : program.rows()) {
      grown.add_row(row);
    }
    for (const Column& column : program.columns()) {
      grown.add_column(column);
      grown.solve(kNoLimit);
      expect_proved(grown);
    }
    ASSERT_EQ(grown.solution().status, status);
    if (best) {
      EXPECT_NEAR(grown.solution().objective, *best, 1e-7);
      // Tightening a bound and loosening it again leads back.
      const ColumnId column(0);
      const double lower = program.column(column).lower;
      grown.set_column_bounds(column, lower, lower);
      grown.solve(kNoLimit);
      expect_proved(grown);
      grown.set_column_bounds(column, lower, program.column(column).upper);
      ASSERT_EQ(grown.solve(kNoLimit), SolveStatus::kOptimal);
      EXPECT_NEAR(grown.solution().objective, *best, 1e-7);
    }
  }
  EXPECT_GT(infeasible, 100);
}

}  // namespace
}  // namespace maypole::lp
