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
};
/// Columns padded with blanks, all but the first `left` to the right.
[[nodiscard]] std::string text_table(const Table& table, std::size_t left);
[[nodiscard]] std::string html_table(const Table& table, std::size_t left);
/// A whole page around `body`.
[[nodiscard]] std::string html_page(std::string_view title, std::string_view body);

}  // namespace maypole::cli
