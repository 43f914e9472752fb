// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tables and pages that the planning commands share: the same table for the terminal and for a page that needs nothing else.

#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // as long as the header
  bool ends_in_prose = false;                  // the last column is text: to the left, and wrapped on a page
};
/// Columns padded with blanks, all but the first `left` (and prose) to the right.
[[nodiscard]] std::string text_table(const Table& table, std::size_t left);
[[nodiscard]] std::string html_table(const Table& table, std::size_t left);
/// A picture at its own size: on a narrow screen it can be moved sideways, where shrinking would make its text too small to read.
[[nodiscard]] std::string html_figure(std::string_view svg);
/// A whole page around `body`.
[[nodiscard]] std::string html_page(std::string_view title, std::string_view body);

}  // namespace maypole::cli
