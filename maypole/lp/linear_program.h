// SPDX-License-Identifier: Apache-2.0
#pragma once

// A linear program as a value:
//
//   maximise   sum_j c_j x_j
//   subject to L_i <= sum_j a_ij x_j <= U_i   for every row i
//              l_j <= x_j <= u_j              for every column j
//
// Any bound may be infinite. Rows are made first or between columns; a column names its entries by row.

#include "maypole/base/strong_id.h"

#include <limits>
#include <vector>

namespace maypole::lp {

using RowId = base::StrongId<struct RowTag>;
using ColumnId = base::StrongId<struct ColumnTag>;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Entry a_ij of a column.
struct Term {
  RowId row;
  double coefficient = 0;
  bool operator==(const Term&) const = default;
};

/// Entry a_ij of a row.
struct RowTerm {
  ColumnId column;
  double coefficient = 0;
};

struct Row {
  double lower = -kInfinity;
  double upper = kInfinity;
};

struct Column {
  double objective = 0;
  double lower = 0;
  double upper = kInfinity;
  std::vector<Term> terms = {};  // entries of one row are summed when the column is added
};

class LinearProgram {
 public:
  /// Bounds must not be NaN; lower > upper is allowed and makes the program infeasible.
  RowId add_row(const Row& row);
  /// Rows must exist. The terms are sorted by row, equal rows summed, zeros dropped.
  ColumnId add_column(Column column);
  /// Appends an entry to a column that exists already, for a row just added; the row must be the largest of the column's.
  void append_term(ColumnId column, const Term& term);

  [[nodiscard]] std::size_t num_rows() const { return rows_.size(); }
  [[nodiscard]] std::size_t num_columns() const { return columns_.size(); }
  [[nodiscard]] const Row& row(RowId id) const { return rows_[id]; }
  [[nodiscard]] const Column& column(ColumnId id) const { return columns_[id]; }
  [[nodiscard]] const base::IdVector<RowId, Row>& rows() const { return rows_; }
  [[nodiscard]] const base::IdVector<ColumnId, Column>& columns() const { return columns_; }

  void set_row_bounds(RowId id, double lower, double upper);
  void set_column_bounds(ColumnId id, double lower, double upper);
  void set_objective(ColumnId id, double objective);

 private:
  base::IdVector<RowId, Row> rows_;
  base::IdVector<ColumnId, Column> columns_;
};

/// sum_j a_ij x_j, [row].
[[nodiscard]] base::IdVector<RowId, double> row_activity(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal);
/// c_j - sum_i a_ij y_i, [column].
[[nodiscard]] base::IdVector<ColumnId, double> reduced_costs(const LinearProgram& program, const base::IdVector<RowId, double>& duals);
/// sum_j c_j x_j.
[[nodiscard]] double objective_value(const LinearProgram& program, const base::IdVector<ColumnId, double>& primal);

}  // namespace maypole::lp
