// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/terminal_text.h"

#include <algorithm>

namespace maypole::cli {

namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

}  // namespace

std::string printable(std::string_view text) {
  std::string safe(text);
  constexpr unsigned char kFirstPlain = 0x20;
  constexpr unsigned char kDelete = 0x7F;
  for (std::size_t i = 0; i < safe.size(); ++i) {
    const auto c = static_cast<unsigned char>(safe[i]);
    const bool second_set = c == 0xC2 && i + 1 < safe.size() && static_cast<unsigned char>(safe[i + 1]) < 0xA0;  // U+0080 to U+009F
    if (second_set) {
      safe.erase(i + 1, 1);
    }
    if (c < kFirstPlain || c == kDelete || second_set) {
      safe[i] = '?';
    }
  }
  return safe;
}

std::size_t columns_of(std::string_view text) { return static_cast<std::size_t>(std::ranges::count_if(text, begins_character)); }

std::string cut_to(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns || columns == 0) {
    return std::string(columns == 0 ? "" : text);
  }
  std::size_t end = 0;
  for (std::size_t kept = 0; end < text.size(); ++end) {
    kept += begins_character(text[end]) ? 1 : 0;
    if (kept == columns) {
      break;
    }
  }
  return std::string(text.substr(0, end)) + "~";
}

}  // namespace maypole::cli
