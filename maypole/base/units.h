// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quantities that people write: `10Gbps`, `25MB`, `5min`. Rates that people write are nominal; `Bandwidth` holds payload bytes per
// second, 0.95 of the nominal rate unless the text's owner says otherwise (docs/formats.md).

#include <absl/status/statusor.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace maypole::base {

using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

/// Share of a link's nominal rate that carries payload.
inline constexpr double kPayloadShare = 0.95;

/// Payload bytes per second. Zero means "no limit".
struct Bandwidth {
  double bytes_per_second = 0;
  [[nodiscard]] bool limited() const { return bytes_per_second > 0; }
  auto operator<=>(const Bandwidth&) const = default;
};

/// Parses a nominal rate (`200Mbps`, `10Gbps`, `125MB/s`; bits in powers of 1000) and returns its payload share.
[[nodiscard]] absl::StatusOr<Bandwidth> parse_bandwidth(std::string_view text);

/// Parses `25MB`, `64KiB`, `1GB`, `4096`; decimal prefixes are powers of 1000, binary ones of 1024.
[[nodiscard]] absl::StatusOr<std::uint64_t> parse_bytes(std::string_view text);

/// Parses `500ms`, `2s`, `5min`, `2h`, `1d`; a bare number is seconds.
[[nodiscard]] absl::StatusOr<Nanoseconds> parse_duration(std::string_view text);

/// `1.50 MB`, `812 B`: for people.
[[nodiscard]] std::string format_bytes(double bytes);
/// `1 worker`, `2 workers`: for people.
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view word);
/// `12.3 ms`, `1.20 s`: for people.
[[nodiscard]] std::string format_seconds(double seconds);
/// `190 Mbit/s of payload`: for people.
[[nodiscard]] std::string format_bandwidth(Bandwidth bandwidth);

[[nodiscard]] inline double to_seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }
[[nodiscard]] inline Nanoseconds from_seconds(double seconds) {
  return std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace maypole::base
