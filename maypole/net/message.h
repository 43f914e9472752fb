// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small typed binary messages: little-endian integers, strings with a length, one length-prefixed frame a message.
// The reader never trusts a length: every one is checked against what is there, and the first fault makes all later reads fail.

#include "maypole/base/units.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::net {

/// Bytes of the length in front of each frame.
inline constexpr std::size_t kFrameHeaderSize = 4;

class MessageWriter {
 public:
  void put_u8(std::uint8_t value) { put_integer(value, 1); }
  void put_u16(std::uint16_t value) { put_integer(value, 2); }
  void put_u32(std::uint32_t value) { put_integer(value, 4); }
  void put_u64(std::uint64_t value) { put_integer(value, 8); }
  void put_f64(double value);
  void put_bytes(std::span<const std::byte> bytes);  // without a length
  void put_string(std::string_view text);            // with a 32-bit length
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void put_integer(std::uint64_t value, int size);
  std::vector<std::byte> bytes_;
};

class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  [[nodiscard]] std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
  [[nodiscard]] std::uint16_t u16() { return static_cast<std::uint16_t>(integer(2)); }
  [[nodiscard]] std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
  [[nodiscard]] std::uint64_t u64() { return integer(8); }
  [[nodiscard]] double f64();
  [[nodiscard]] std::string string();
  /// Says whether everything so far was there; values read after a fault are zero or empty.
  [[nodiscard]] bool ok() const { return ok_; }
  /// Also demands that nothing is left over.
  [[nodiscard]] absl::Status finish(std::string_view what) const;

 private:
  std::uint64_t integer(std::size_t size);
  std::span<const std::byte> take(std::size_t size);
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

/// Sends one frame; `what` names the peer in errors.
[[nodiscard]] absl::Status send_message(int fd, std::span<const std::byte> payload, base::TimePoint deadline, std::string_view what);
/// Receives one frame of at most `limit` bytes; nothing is allocated for a longer one.
[[nodiscard]] absl::StatusOr<std::vector<std::byte>> receive_message(int fd, std::size_t limit, base::TimePoint deadline,
                                                                     std::string_view what);

}  // namespace maypole::net
