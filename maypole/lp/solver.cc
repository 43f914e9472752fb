// SPDX-License-Identifier: Apache-2.0
#include "maypole/lp/solver.h"

#include "maypole/base/check.h"
#include "maypole/lp/certificate.h"

#include <ClpSimplex.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace maypole::lp {

namespace {

// CLP ends the process (an assertion) over objective coefficients of 1e25 and more, and takes bounds of that size for none. Larger
// objectives are scaled below this; programs with larger bounds or entries are not given to it.
constexpr double kLargestObjective = 1e15;
constexpr double kLargestNumber = 1e24;

double to_clp(double bound) { return std::isinf(bound) ? (bound > 0 ? COIN_DBL_MAX : -COIN_DBL_MAX) : bound; }

// Rows or columns in the arrays that CLP takes.
struct Batch {
  std::vector<double> lower, upper, objective;
  std::vector<CoinBigIndex> starts = {0};
  std::vector<int> indices;
  std::vector<double> elements;

  [[nodiscard]] int size() const { return static_cast<int>(lower.size()); }
  void close() { starts.push_back(static_cast<CoinBigIndex>(indices.size())); }
};

// The sign of a finite bound's side seen from far away: 0 where it is finite, else what stands in for infinity.
double recession_bound(double bound, double infinite) { return std::isfinite(bound) ? 0 : infinite; }

}  // namespace

struct Solver::State {
  LinearProgram program;
  ClpSimplex clp;
  Batch new_rows, new_columns;
  double scale = 1;              // of the objective as CLP has it: a power of two
  double largest_objective = 0;  // of all coefficients that there have been
  bool too_large = false;        // some bound or entry is
  bool columns_changed = true;   // since the last solve: the basis is primal feasible still, so the primal simplex goes on from it
  Solution solution;
  std::int64_t total_pivots = 0;

  State() {
    clp.setLogLevel(0);
    clp.setRandomSeed(1234567);
    clp.setPerturbation(100);  // off: our programs are small, and what perturbing leaves behind costs a second pass
  }

  void flush_rows() {
    if (new_rows.size() > 0) {
      clp.addRows(new_rows.size(), new_rows.lower.data(), new_rows.upper.data(), new_rows.starts.data(), new_rows.indices.data(),
                  new_rows.elements.data());
      new_rows = {};
    }
  }
  void flush_columns() {
    if (new_columns.size() > 0) {
      for (double& objective : new_columns.objective) {
        objective *= scale;
      }
      clp.addColumns(new_columns.size(), new_columns.lower.data(), new_columns.upper.data(), new_columns.objective.data(),
                     new_columns.starts.data(), new_columns.indices.data(), new_columns.elements.data());
      new_columns = {};
    }
  }
  // At most one of the two batches has something in it, so this keeps the order of the calls.
  void flush() {
    flush_rows();
    flush_columns();
  }

  void note_bounds(double lower, double upper) {
    const auto is_too_large = [](double bound) { return std::isfinite(bound) && std::abs(bound) > kLargestNumber; };
    too_large = too_large || is_too_large(lower) || is_too_large(upper);
  }
  void note_objective(double objective) { largest_objective = std::max(largest_objective, std::abs(objective)); }
  // 1 for all that is not huge, so that the usual program reaches CLP as it is.
  void rescale() {
    const double wanted = largest_objective > kLargestObjective ? std::ldexp(1, -std::ilogb(largest_objective)) : 1;
    if (wanted == scale) {
      return;
    }
    scale = wanted;
    for (std::size_t j = 0; j < program.num_columns(); ++j) {
      clp.setObjectiveCoefficient(static_cast<int>(j), -program.column(ColumnId::from_index(j)).objective * scale);
    }
  }

  RowId add_row(const Row& row, std::span<const RowTerm> terms) {
    note_bounds(row.lower, row.upper);
    const RowId id = program.add_row(row);
    flush_columns();
    std::vector<RowTerm> sorted(terms.begin(), terms.end());
    std::ranges::stable_sort(sorted, {}, &RowTerm::column);
    for (std::size_t first = 0; first < sorted.size();) {
      const ColumnId column = sorted[first].column;
      double coefficient = 0;
      for (; first < sorted.size() && sorted[first].column == column; ++first) {
        coefficient += sorted[first].coefficient;
      }
      if (coefficient != 0) {
        note_bounds(coefficient, coefficient);
        program.append_term(column, {id, coefficient});
        new_rows.indices.push_back(column.value());
        new_rows.elements.push_back(coefficient);
      }
    }
    new_rows.close();
    new_rows.lower.push_back(to_clp(row.lower));
    new_rows.upper.push_back(to_clp(row.upper));
    return id;
  }

  ColumnId add_column(Column column) {
    flush_rows();
    columns_changed = true;
    const ColumnId id = program.add_column(std::move(column));
    const Column& added = program.column(id);
    note_objective(added.objective);
    note_bounds(added.lower, added.upper);
    for (const Term& term : added.terms) {
      note_bounds(term.coefficient, term.coefficient);
      new_columns.indices.push_back(term.row.value());
      new_columns.elements.push_back(term.coefficient);
    }
    new_columns.close();
    new_columns.lower.push_back(to_clp(added.lower));
    new_columns.upper.push_back(to_clp(added.upper));
    new_columns.objective.push_back(-added.objective);  // CLP minimises
    return id;
  }

  // Bounds that contradict each other: CLP is never asked.
  [[nodiscard]] bool bounds_contradict() const {
    const auto contradict = [](const auto& item) { return item.lower > item.upper; };
    return std::ranges::any_of(program.rows(), contradict) || std::ranges::any_of(program.columns(), contradict);
  }

  // Runs one of CLP's two algorithms; returns its status: 0 optimal, 1 primal infeasible, 2 dual infeasible, 3 limit,
  // others: trouble.
  int run(bool primal, std::int64_t& pivots_left) {
    clp.setMaximumIterations(static_cast<int>(std::min<std::int64_t>(pivots_left, std::numeric_limits<int>::max())));
    const int status = primal ? clp.primal() : clp.dual();
    pivots_left -= clp.numberIterations();
    return status;
  }

  // The algorithm for which the last basis is feasible goes first. Where CLP does not come to a verdict (it hands over to the other
  // algorithm, or the basis is too bad to invert), the other one follows, then both from the beginning. The dual simplex cannot tell
  // unbounded from infeasible, so its verdict of dual infeasible is no verdict.
  int run_to_the_end(std::int64_t& pivots_left) {
    const auto is_verdict = [](int status, bool primal) { return status == 0 || status == 1 || status == 3 || (status == 2 && primal); };
    bool primal = columns_changed;
    int status = run(primal, pivots_left);
    for (int attempt = 1; attempt < 4 && !is_verdict(status, primal) && pivots_left > 0; ++attempt) {
      primal = !primal;
      if (attempt == 2) {
        clp.allSlackBasis(true);
      }
      status = run(primal, pivots_left);
    }
    return is_verdict(status, primal) ? status : 3;
  }

  SolveStatus solve(std::int64_t max_pivots) {
    flush();
    rescale();
    solution = {};
    std::int64_t left = std::max<std::int64_t>(max_pivots, 0);
    if (bounds_contradict()) {
      solution.status = SolveStatus::kInfeasible;
    } else if (std::ranges::all_of(program.columns(), [](const Column& column) { return column.terms.empty(); })) {
      return solve_without_terms();
    } else if (too_large) {
      solution.primal.assign(program.num_columns(), 0);
      solution.duals.assign(program.num_rows(), 0);
      solution.reduced = reduced_costs(program, solution.duals);
      return solution.status;
    } else {
      const int status = run_to_the_end(left);
      solution.status = status == 0   ? SolveStatus::kOptimal
                        : status == 1 ? SolveStatus::kInfeasible
                        : status == 2 ? SolveStatus::kUnbounded
                                      : SolveStatus::kLimit;
    }
    columns_changed = false;
    read_answer();
    // An answer without its proof is no answer.
    if (solution.status == SolveStatus::kInfeasible && !find_infeasibility_ray(left)) {
      solution.status = SolveStatus::kLimit;
    }
    if (solution.status == SolveStatus::kUnbounded && !find_unbounded_ray(left)) {
      solution.status = SolveStatus::kLimit;
    }
    solution.pivots = std::max<std::int64_t>(max_pivots, 0) - left;
    total_pivots += solution.pivots;
    return solution.status;
  }

  // Without entries every column goes to its better bound, and the rows hold 0. (CLP does not end on a program without rows.)
  SolveStatus solve_without_terms() {
    solution.status = SolveStatus::kOptimal;
    solution.primal.assign(program.num_columns(), 0);
    solution.duals.assign(program.num_rows(), 0);
    for (std::size_t j = 0; j < program.num_columns(); ++j) {
      const auto id = ColumnId::from_index(j);
      const Column& column = program.column(id);
      const double better = column.objective > 0   ? column.upper
                            : column.objective < 0 ? column.lower
                                                   : std::clamp(0.0, column.lower, column.upper);
      solution.primal[id] = std::isfinite(better) ? better : std::clamp(0.0, column.lower, column.upper);
      if (!std::isfinite(better)) {
        solution.status = SolveStatus::kUnbounded;
        solution.unbounded_ray.assign(program.num_columns(), 0);
        solution.unbounded_ray[id] = better > 0 ? 1 : -1;
      }
    }
    for (std::size_t i = 0; i < program.num_rows(); ++i) {
      const auto id = RowId::from_index(i);
      if (program.row(id).lower > 0 || program.row(id).upper < 0) {
        solution.status = SolveStatus::kInfeasible;
        solution.unbounded_ray = {};
        solution.infeasibility_ray.assign(program.num_rows(), 0);
        solution.infeasibility_ray[id] = program.row(id).lower > 0 ? -1 : 1;
        break;
      }
    }
    solution.reduced = reduced_costs(program, solution.duals);
    solution.objective = objective_value(program, solution.primal);
    return solution.status;
  }

  void read_answer() {
    const std::size_t num_columns = program.num_columns();
    const std::size_t num_rows = program.num_rows();
    solution.primal.assign(num_columns, 0);
    solution.duals.assign(num_rows, 0);
    if (!bounds_contradict()) {
      for (std::size_t j = 0; j < num_columns; ++j) {
        solution.primal[ColumnId::from_index(j)] = clp.primalColumnSolution()[j];
      }
      for (std::size_t i = 0; i < num_rows; ++i) {
        solution.duals[RowId::from_index(i)] = -clp.dualRowSolution()[i] / scale;
      }
    }
    solution.reduced = reduced_costs(program, solution.duals);
    solution.objective = objective_value(program, solution.primal);
  }

  // Farkas multipliers are the duals of: minimise what the rows are short of or exceed.
  bool find_infeasibility_ray(std::int64_t& pivots_left) {
    solution.infeasibility_ray.assign(program.num_rows(), 0);
    if (std::ranges::any_of(program.columns(), [](const Column& column) { return column.lower > column.upper; })) {
      return true;
    }
    for (std::size_t i = 0; i < program.num_rows(); ++i) {
      const Row& row = program.row(RowId::from_index(i));
      if (row.lower > row.upper) {  // a multiplier of either sign of this row alone: -1 demands more than U, at most -L
        solution.infeasibility_ray[RowId::from_index(i)] = 1;
        return true;
      }
    }
    LinearProgram elastic;
    for (const Row& row : program.rows()) {
      elastic.add_row(row);
    }
    for (Column column : program.columns()) {
      column.objective = 0;
      elastic.add_column(std::move(column));
    }
    for (std::size_t i = 0; i < program.num_rows(); ++i) {
      const auto id = RowId::from_index(i);
      elastic.add_column({.objective = -1, .terms = {{id, 1}}});
      elastic.add_column({.objective = -1, .terms = {{id, -1}}});
    }
    Solver solver(elastic);
    if (solver.solve(pivots_left) != SolveStatus::kOptimal) {
      pivots_left -= solver.total_pivots();
      return false;
    }
    pivots_left -= solver.total_pivots();
    solution.infeasibility_ray = solver.solution().duals;
    return check_infeasible(program, solution.infeasibility_ray).ok();
  }

  // An improving direction is the optimum of the program whose finite bounds are 0 and whose directions are at most 1 long.
  bool find_unbounded_ray(std::int64_t& pivots_left) {
    LinearProgram recession;
    for (const Row& row : program.rows()) {
      recession.add_row({recession_bound(row.lower, -kInfinity), recession_bound(row.upper, kInfinity)});
    }
    for (Column column : program.columns()) {
      column.lower = recession_bound(column.lower, -1);
      column.upper = recession_bound(column.upper, 1);
      recession.add_column(std::move(column));
    }
    Solver solver(recession);
    const bool solved = solver.solve(pivots_left) == SolveStatus::kOptimal;
    pivots_left -= solver.total_pivots();
    solution.unbounded_ray = solver.solution().primal;
    return solved && check_unbounded(program, solution.primal, solution.unbounded_ray).ok();
  }
};

Solver::Solver() : state_(std::make_unique<State>()) {}
Solver::Solver(const LinearProgram& program) : Solver() {
  for (const Row& row : program.rows()) {
    add_row(row);
  }
  for (const Column& column : program.columns()) {
    add_column(column);
  }
}
Solver::~Solver() = default;
Solver::Solver(Solver&&) noexcept = default;
Solver& Solver::operator=(Solver&&) noexcept = default;

RowId Solver::add_row(const Row& row) { return state_->add_row(row, {}); }
RowId Solver::add_row(const Row& row, std::span<const RowTerm> terms) { return state_->add_row(row, terms); }
ColumnId Solver::add_column(Column column) { return state_->add_column(std::move(column)); }

void Solver::set_row_bounds(RowId id, double lower, double upper) {
  state_->note_bounds(lower, upper);
  state_->program.set_row_bounds(id, lower, upper);
  state_->flush();
  state_->clp.setRowBounds(id.value(), to_clp(lower), to_clp(upper));
}
void Solver::set_column_bounds(ColumnId id, double lower, double upper) {
  state_->note_bounds(lower, upper);
  state_->program.set_column_bounds(id, lower, upper);
  state_->flush();
  state_->clp.setColumnBounds(id.value(), to_clp(lower), to_clp(upper));
}
void Solver::set_objective(ColumnId id, double objective) {
  state_->note_objective(objective);
  state_->program.set_objective(id, objective);
  state_->flush();
  state_->clp.setObjectiveCoefficient(id.value(), -objective * state_->scale);
  state_->columns_changed = true;
}

SolveStatus Solver::solve(std::int64_t max_pivots) { return state_->solve(max_pivots); }
const Solution& Solver::solution() const { return state_->solution; }
const LinearProgram& Solver::program() const { return state_->program; }
std::int64_t Solver::total_pivots() const { return state_->total_pivots; }

}  // namespace maypole::lp
