// SPDX-License-Identifier: Apache-2.0
#pragma once

// The simplex solver behind one header. It is incremental: rows and columns may be added and bounds and objective changed between two
// solves, and each solve starts from the last basis. That is what column generation needs:
//
//   Solver master;
//   ... add_row for every job, server and link; add_column for the first embeddings ...
//   while (master.solve(limit) == SolveStatus::kOptimal) {
//     ... price with master.solution().duals; add_column for what improves; stop when nothing does ...
//   }
//
// Behind it is COIN-OR CLP (docs/scheduler.md says why); its answers are judged by lp/certificate.h, which shares no code with it.

#include "maypole/lp/linear_program.h"

#include <cstdint>
#include <memory>
#include <span>

namespace maypole::lp {

enum class SolveStatus {
  kOptimal,
  kInfeasible,  // `ray` proves it
  kUnbounded,   // `ray` proves it, together with a feasible `primal`
  kLimit,       // the limit of pivots was reached, or the numbers were too bad to go on (finite bounds or entries over 1e24 always are):
                // `primal` may be infeasible, `duals` may be far from optimal; lp::dual_bound still makes a valid bound of them
};

/// What the last solve found. With y = duals and d = reduced: at the optimum y_i >= 0 where only the row's upper bound binds, <= 0 where
/// only the lower does, else 0; d_j <= 0 for a column at its lower bound, >= 0 at its upper, else 0.
struct Solution {
  SolveStatus status = SolveStatus::kLimit;
  double objective = 0;
  base::IdVector<ColumnId, double> primal;
  base::IdVector<RowId, double> duals;
  base::IdVector<ColumnId, double> reduced;
  base::IdVector<RowId, double> infeasibility_ray;  // Farkas multipliers; empty unless kInfeasible (see certificate.h)
  base::IdVector<ColumnId, double> unbounded_ray;   // a direction; empty unless kUnbounded
  std::int64_t pivots = 0;                          // simplex iterations of this solve
};

/// Deterministic: the same sequence of calls gives the same bits. Not thread-safe; different objects may be used by different threads.
class Solver {
 public:
  Solver();
  /// Takes over a whole program.
  explicit Solver(const LinearProgram& program);
  ~Solver();
  Solver(Solver&&) noexcept;
  Solver& operator=(Solver&&) noexcept;

  RowId add_row(const Row& row);
  /// A row over columns that exist (a cut, a branching row). Columns named twice are summed.
  RowId add_row(const Row& row, std::span<const RowTerm> terms);
  ColumnId add_column(Column column);
  void set_row_bounds(RowId id, double lower, double upper);
  void set_column_bounds(ColumnId id, double lower, double upper);
  void set_objective(ColumnId id, double objective);

  /// Solves from the last basis with at most `max_pivots` simplex iterations (all phases together).
  SolveStatus solve(std::int64_t max_pivots);

  [[nodiscard]] const Solution& solution() const;
  [[nodiscard]] const LinearProgram& program() const;
  /// Simplex iterations of all solves of this object.
  [[nodiscard]] std::int64_t total_pivots() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maypole::lp
