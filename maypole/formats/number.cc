// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace maypole::formats {

namespace {

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = failure == std::errc() && end == text.data() + text.size();
  return whole ? std::optional<Number>(value) : std::nullopt;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  const std::optional<double> value = parse<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text) { return parse<std::int64_t>(text); }
std::optional<std::uint64_t> parse_unsigned(std::string_view text) { return parse<std::uint64_t>(text); }

std::string format_number(double value) {
  if (value == 0 && std::signbit(value)) {
    return "-0.0";  // `-0` would be read as an integer, which has no negative zero
  }
  return fmt::format("{}", value);
}

}  // namespace maypole::formats
