// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/units.h"

#include "maypole/base/status.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <span>
#include <utility>

namespace maypole::base {

namespace {

struct Unit {
  std::string_view suffix;
  double factor;
};

/// Splits "10Gbps" into 10 and the unit's factor; the error lists the units.
absl::StatusOr<double> parse_quantity(std::string_view text, std::string_view what, std::span<const Unit> units) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  std::string_view suffix(end);
  while (!suffix.empty() && suffix.front() == ' ') {
    suffix.remove_prefix(1);
  }
  const bool starts_like_number = !copy.empty() && (std::isdigit(static_cast<unsigned char>(copy[0])) != 0 || copy[0] == '.');
  if (starts_like_number && end != copy.c_str() && std::isfinite(number)) {
    for (const Unit& unit : units) {
      if (suffix == unit.suffix) {
        return number * unit.factor;
      }
    }
  }
  std::string known;
  for (const Unit& unit : units) {
    if (!unit.suffix.empty()) {
      known += known.empty() ? "" : ", ";
      known += unit.suffix;
    }
  }
  return error(absl::StatusCode::kInvalidArgument, "'{}' is not a {}: write a number and one of {}", text, what, known);
}

}  // namespace

absl::StatusOr<Bandwidth> parse_bandwidth(std::string_view text) {
  static constexpr Unit kUnits[] = {{"bps", 1.0 / 8},  {"kbps", 1e3 / 8}, {"Kbps", 1e3 / 8}, {"Mbps", 1e6 / 8},
                                    {"Gbps", 1e9 / 8}, {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8},
                                    {"B/s", 1},        {"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9}};
  MAYPOLE_ASSIGN_OR_RETURN(const double nominal, parse_quantity(text, "bandwidth", kUnits));
  if (nominal <= 0) {
    return error(absl::StatusCode::kInvalidArgument, "bandwidth '{}' must be above zero", text);
  }
  return Bandwidth{nominal * kPayloadShare};
}

absl::StatusOr<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr Unit kUnits[] = {{"", 1},
                                    {"B", 1},
                                    {"kB", 1e3},
                                    {"KB", 1e3},
                                    {"MB", 1e6},
                                    {"GB", 1e9},
                                    {"TB", 1e12},
                                    {"KiB", 1024.0},
                                    {"MiB", 1024.0 * 1024},
                                    {"GiB", 1024.0 * 1024 * 1024},
                                    {"TiB", 1024.0 * 1024 * 1024 * 1024}};
  MAYPOLE_ASSIGN_OR_RETURN(const double bytes, parse_quantity(text, "size", kUnits));
  if (bytes > 9e18) {
    return error(absl::StatusCode::kInvalidArgument, "size '{}' is too large", text);
  }
  return static_cast<std::uint64_t>(std::llround(bytes));
}

absl::StatusOr<Nanoseconds> parse_duration(std::string_view text) {
  static constexpr Unit kUnits[] = {{"", 1},     {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
                                    {"min", 60}, {"m", 60},    {"h", 3600},  {"d", 86400}};
  MAYPOLE_ASSIGN_OR_RETURN(const double seconds, parse_quantity(text, "duration", kUnits));
  if (seconds > 9e9) {
    return error(absl::StatusCode::kInvalidArgument, "duration '{}' is too long", text);
  }
  return from_seconds(seconds);
}

std::string format_bytes(double bytes) {
  if (bytes < 1e3) {
    return fmt::format("{:.0f} B", bytes);
  }
  if (bytes < 1e6) {
    return fmt::format("{:.1f} kB", bytes / 1e3);
  }
  if (bytes < 1e9) {
    return fmt::format("{:.1f} MB", bytes / 1e6);
  }
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string counted(std::uint64_t count, std::string_view word) { return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s"); }

std::string format_seconds(double seconds) {
  if (seconds == 0) {
    return "0 s";
  }
  if (seconds < 1e-3) {
    return fmt::format("{:.1f} us", seconds * 1e6);
  }
  if (seconds < 1) {
    return fmt::format("{:.1f} ms", seconds * 1e3);
  }
  return fmt::format("{:.2f} s", seconds);
}

std::string format_bandwidth(Bandwidth bandwidth) {
  if (!bandwidth.limited()) {
    return "unlimited";
  }
  const double megabits = bandwidth.bytes_per_second * 8 / 1e6;
  return megabits < 9999.5 ? fmt::format("{:.4g} Mbit/s of payload", megabits) : fmt::format("{:.4g} Gbit/s of payload", megabits / 1e3);
}

}  // namespace maypole::base
