// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/whole_number.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

namespace maypole::cli {

std::optional<std::string> whole_number_problem(const std::string& text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, value);
  if (failure == std::errc() && stopped == end && value >= low && value <= high) {
    return std::nullopt;
  }
  return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
}

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  return {[low, high](const std::string& text) { return whole_number_problem(text, low, high).value_or(""); },
          fmt::format("{} to {}", low, high)};
}

}  // namespace maypole::cli
