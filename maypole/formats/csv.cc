// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/csv.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/formats/number.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

// Cuts records off the front of a text.
class RecordReader {
 public:
  RecordReader(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  [[nodiscard]] int line() const { return line_; }

  absl::StatusOr<std::vector<std::string>> next() {
    std::vector<std::string> fields;
    while (true) {
      MAYPOLE_ASSIGN_OR_RETURN(std::string field, next_field());
      fields.push_back(std::move(field));
      if (rest_.empty() || rest_.front() != ',') {
        break;
      }
      rest_.remove_prefix(1);
    }
    end_line();
    return fields;
  }

 private:
  absl::StatusOr<std::string> next_field() {
    const std::size_t blanks = std::min(rest_.find_first_not_of(" \t"), rest_.size());
    if (blanks < rest_.size() && rest_[blanks] == '"') {
      rest_.remove_prefix(blanks + 1);
      return quoted_field();
    }
    const std::size_t end = std::min(rest_.find_first_of(",\r\n\""), rest_.size());
    if (end < rest_.size() && rest_[end] == '"') {
      return error(kInvalid, "{}:{}: a quote inside a field: put the whole field in quotes, and double those inside", file_, line_);
    }
    std::string field(trimmed(rest_.substr(0, end)));
    rest_.remove_prefix(end);
    return field;
  }

  absl::StatusOr<std::string> quoted_field() {
    const int first_line = line_;
    std::string field;
    while (true) {
      const std::size_t quote = rest_.find('"');
      if (quote == std::string_view::npos) {
        return error(kInvalid, "{}:{}: a quote that never ends: close it", file_, first_line);
      }
      field += rest_.substr(0, quote);
      line_ += static_cast<int>(std::ranges::count(rest_.substr(0, quote), '\n'));
      rest_.remove_prefix(quote + 1);
      if (!rest_.starts_with('"')) {
        break;
      }
      field += '"';
      rest_.remove_prefix(1);
    }
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size()));
    if (!rest_.empty() && rest_.find_first_of(",\r\n") != 0) {
      return error(kInvalid, "{}:{}: text after a closing quote: put the whole field in quotes", file_, line_);
    }
    return field;
  }

  void end_line() {
    if (rest_.starts_with("\r\n")) {
      rest_.remove_prefix(2);
      ++line_;
    } else if (!rest_.empty()) {
      rest_.remove_prefix(1);
      ++line_;
    }
  }

  std::string_view rest_;
  std::string_view file_;
  int line_ = 1;
};

bool blank(const std::vector<std::string>& fields) { return fields.size() == 1 && fields.front().empty(); }

}  // namespace

std::optional<std::size_t> CsvTable::column(std::string_view name) const {
  const auto found = std::ranges::find(header, name);
  return found == header.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - header.begin()));
}

bool CsvTable::has(std::span<const std::string_view> names) const {
  return std::ranges::all_of(names, [this](std::string_view name) { return column(name).has_value(); });
}

absl::StatusOr<CsvTable> parse_csv(std::string_view text, std::string_view file) {
  CsvTable table;
  table.file = file;
  RecordReader reader(text, table.file);
  while (!reader.at_end()) {
    const int line = reader.line();
    MAYPOLE_ASSIGN_OR_RETURN(std::vector<std::string> fields, reader.next());
    if (blank(fields)) {
      continue;
    }
    if (table.header.empty()) {
      for (const std::string& name : fields) {
        if (std::ranges::count(fields, name) > 1) {
          return error(kInvalid, "{}:{}: the column '{}' is there twice: keep one", file, line, name);
        }
      }
      table.header = std::move(fields);
    } else if (fields.size() != table.header.size()) {
      return error(kInvalid, "{}:{}: the row has {} fields, the header {}: write one field per column", file, line, fields.size(),
                   table.header.size());
    } else {
      table.rows.push_back({line, std::move(fields)});
    }
  }
  if (table.header.empty()) {
    return error(kInvalid, "{}: is empty: the first line names the columns", file);
  }
  return table;
}

std::vector<std::string> csv_header(std::string_view text) {
  RecordReader reader(text, "");
  while (!reader.at_end()) {
    const absl::StatusOr<std::vector<std::string>> fields = reader.next();
    if (!fields.ok()) {
      return {};
    }
    if (!blank(*fields)) {
      return *fields;
    }
  }
  return {};
}

const std::string& CsvRow::text(std::string_view column) const {
  const std::optional<std::size_t> index = table_.column(column);
  MAYPOLE_CHECK(index.has_value());
  return row_.fields[*index];
}

std::string CsvRow::name(std::string_view column) const {
  if (text(column).empty()) {
    problem(column, "is empty: give a name");
  }
  return text(column);
}

double CsvRow::number(std::string_view column, double least) const {
  const std::string& field = text(column);
  const std::optional<double> value = parse_number(field);
  if (!value || *value < least) {
    problem(column, fmt::format("'{}' is not a finite number of at least {}", field, least));
    return least;
  }
  return *value;
}

double CsvRow::positive(std::string_view column) const {
  const std::string& field = text(column);
  const std::optional<double> value = parse_number(field);
  if (!value || *value <= 0) {
    problem(column, fmt::format("'{}' is not a finite number above 0: correct the row, or remove it", field));
    return 1;
  }
  return *value;
}

std::optional<double> CsvRow::optional_positive(std::string_view column) const {
  return text(column).empty() ? std::nullopt : std::optional(positive(column));
}

int CsvRow::integer(std::string_view column, int least) const {
  const std::string& field = text(column);
  const std::optional<double> value = parse_number(field);  // `4.0` too, as spreadsheets and data frames write whole numbers
  if (!value || *value < least || *value > std::numeric_limits<int>::max() || *value != std::floor(*value)) {
    problem(column, fmt::format("'{}' is not a whole number of at least {}", field, least));
    return least;
  }
  return static_cast<int>(*value);
}

std::string csv_field(std::string_view text) {
  if (text == trimmed(text) && text.find_first_of(",\"\r\n") == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char character : text) {
    quoted += character;
    quoted += character == '"' ? "\"" : "";
  }
  return quoted + '"';
}

}  // namespace maypole::formats
