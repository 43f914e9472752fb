// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tables of comma-separated text (RFC 4180: quotes, doubled quotes, CRLF or LF), with a header, read as columns by name. Errors say
// `jobs.csv:17: duration: ...`.

#include "maypole/formats/document.h"

#include <absl/status/statusor.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::formats {

struct CsvTable {
  struct Row {
    int line = 0;  // its first line in the file
    std::vector<std::string> fields;
  };
  std::string file;
  std::vector<std::string> header;
  std::vector<Row> rows;

  [[nodiscard]] std::optional<std::size_t> column(std::string_view name) const;
  [[nodiscard]] bool has(std::span<const std::string_view> names) const;
};

/// Errors: no header, a quote that never ends or stands inside a word, a column named twice, a row with another number of fields than
/// the header. Empty lines are passed over; blanks around names and unquoted fields are dropped.
[[nodiscard]] absl::StatusOr<CsvTable> parse_csv(std::string_view text, std::string_view file);
/// The names in the first line, as far as they can be read: enough to tell which format a file has.
[[nodiscard]] std::vector<std::string> csv_header(std::string_view text);

/// A row's fields by column name. A wrong field is added to the problems and read as a default.
class CsvRow {
 public:
  CsvRow(const CsvTable& table, std::size_t row, Problems& problems) : table_(table), row_(table.rows[row]), problems_(problems) {}

  /// The field of a column that the table has; empty where it was left out.
  [[nodiscard]] const std::string& text(std::string_view column) const;
  /// A text that must be there.
  [[nodiscard]] std::string name(std::string_view column) const;
  [[nodiscard]] double number(std::string_view column, double least) const;
  /// A number that must be above 0.
  [[nodiscard]] double positive(std::string_view column) const;
  /// None where the field is empty.
  [[nodiscard]] std::optional<double> optional_positive(std::string_view column) const;
  [[nodiscard]] int integer(std::string_view column, int least) const;
  [[nodiscard]] int line() const { return row_.line; }
  void problem(std::string_view column, std::string_view sentence) const { problems_.add(row_.line, column, sentence); }

 private:
  const CsvTable& table_;
  const CsvTable::Row& row_;
  Problems& problems_;
};

/// The field as a row of CSV holds it: in quotes where it must be.
[[nodiscard]] std::string csv_field(std::string_view text);

}  // namespace maypole::formats
