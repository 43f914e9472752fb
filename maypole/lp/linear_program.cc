// SPDX-License-Identifier: Apache-2.0
#include "maypole/lp/linear_program.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <cmath>

namespace maypole::lp {

namespace {

void check_bounds(double lower, double upper) {
  MAYPOLE_CHECK(!std::isnan(lower) && !std::isnan(upper));
  MAYPOLE_CHECK(lower < kInfinity && upper > -kInfinity);
}

}  // namespace

RowId LinearProgram::add_row(const Row& row) {
  check_bounds(row.lower, row.upper);
  return rows_.push_back(row);
}

ColumnId LinearProgram::add_column(Column column) {
  check_bounds(column.lower, column.upper);
  MAYPOLE_CHECK(std::isfinite(column.objective));
  std::ranges::stable_sort(column.terms, {}, &Term::row);
  std::vector<Term> merged;
  merged.reserve(column.terms.size());
  for (const Term& term : column.terms) {
    MAYPOLE_CHECK(rows_.contains(term.row) && std::isfinite(term.coefficient));
    if (!merged.empty() && merged.back().row == term.row) {
      merged.back().coefficient += term.coefficient;
    } else {
      merged.push_back(term);
    }
  }
  std::erase_if(merged, [](const Term& term) { return term.coefficient == 0; });
  column.terms = std::move(merged);
  return columns_.push_back(std::move(column));
}

void LinearProgram::append_term(ColumnId column, const Term& term) {
  std::vector<Term>& terms = columns_[column].terms;
  MAYPOLE_CHECK(rows_.contains(term.row) && std::isfinite(term.coefficient));
  MAYPOLE_CHECK(terms.empty() || terms.back().row < term.row);
  terms.push_back(term);
}

void LinearProgram::set_row_bounds(RowId id, double lower, double upper) {
  check_bounds(lower, upper);
  rows_[id] = {lower, upper};
}

void LinearProgram::set_column_bounds(ColumnId id, double lower, double upper) {
  check_bounds(lower, upper);
  columns_[id].lower = lower;
  columns_[id].upper = upper;
}

void LinearProgram::set_objective(ColumnId id, double objective) {
  MAYPOLE_CHECK(std::isfinite(objective));
  columns_[id].objective = objective;
}

base::IdVector<RowId, double> row_activity(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal) {
  MAYPOLE_CHECK_EQ(primal.size(), program.num_columns());
  base::IdVector<RowId, double> activity(program.num_rows(), 0.0);
  for (std::size_t j = 0; j < program.num_columns(); ++j) {
    const auto id = ColumnId::from_index(j);
    for (const Term& term : program.column(id).terms) {
      activity[term.row] += term.coefficient * primal[id];
    }
  }
  return activity;
}

base::IdVector<ColumnId, double> reduced_costs(const LinearProgram& program, const base::IdVector<RowId, double>& duals) {
  MAYPOLE_CHECK_EQ(duals.size(), program.num_rows());
  base::IdVector<ColumnId, double> reduced(program.num_columns(), 0.0);
  for (std::size_t j = 0; j < program.num_columns(); ++j) {
    const auto id = ColumnId::from_index(j);
    const Column& column = program.column(id);
    double value = column.objective;
    for (const Term& term : column.terms) {
      value -= term.coefficient * duals[term.row];
    }
    reduced[id] = value;
  }
  return reduced;
}

double objective_value(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal) {
  MAYPOLE_CHECK_EQ(primal.size(), program.num_columns());
  double value = 0;
  for (std::size_t j = 0; j < program.num_columns(); ++j) {
    const auto id = ColumnId::from_index(j);
    value += program.column(id).objective * primal[id];
  }
  return value;
}

}  // namespace maypole::lp
