// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/page.h"

#include "maypole/sim/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>

namespace maypole::cli {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 sans-serif;color:#1a1a1a;background:#fff;max-width:1100px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;font-size:13px}.wide{overflow-x:auto}"
    "th,td{padding:.3em .6em;border-bottom:1px solid #ccc;text-align:right;white-space:nowrap}.left{text-align:left}"
    ".prose{text-align:left;white-space:normal;min-width:17em}@media(max-width:700px){.prose{white-space:nowrap}}"
    "svg{display:block;margin:1em 0;border:1px solid #ddd}";

bool is_prose(const Table& table, std::size_t column) { return table.ends_in_prose && column + 1 == table.header.size(); }

}  // namespace

std::string text_table(const Table& table, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const std::string& cell : table.header) {
    widths.push_back(cell.size());
  }
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += i < left || is_prose(table, i) ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add(table.header);
  for (const auto& row : table.rows) {
    add(row);
  }
  return text;
}

std::string html_table(const Table& table, std::size_t left) {
  const auto row_of = [&](const std::vector<std::string>& row, const char* tag) {
    std::string html = "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const char* look = is_prose(table, i) ? " class=\"prose\"" : i < left ? " class=\"left\"" : "";
      html += fmt::format("<{0}{1}>{2}</{0}>", tag, look, sim::escaped(row[i]));
    }
    return html + "</tr>\n";
  };
  std::string html = "<div class=\"wide\"><table><thead>" + row_of(table.header, "th") + "</thead><tbody>\n";
  for (const auto& row : table.rows) {
    html += row_of(row, "td");
  }
  return html + "</tbody></table></div>\n";
}

std::string html_figure(std::string_view svg) { return fmt::format("<div class=\"wide\">{}</div>\n", svg); }

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
      "<title>{0}</title><style>{1}</style></head><body>\n<h1>{0}</h1>\n{2}</body></html>\n",
      sim::escaped(title), kStyle, body);
}

}  // namespace maypole::cli
