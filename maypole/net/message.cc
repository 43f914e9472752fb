// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/message.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/net/socket.h"

#include <bit>
#include <limits>

namespace maypole::net {

void MessageWriter::put_integer(std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i) {
    bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
}

void MessageWriter::put_f64(double value) { put_u64(std::bit_cast<std::uint64_t>(value)); }

void MessageWriter::put_bytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

void MessageWriter::put_string(std::string_view text) {
  MAYPOLE_CHECK_LE(text.size(), std::numeric_limits<std::uint32_t>::max());
  put_u32(static_cast<std::uint32_t>(text.size()));
  put_bytes(std::as_bytes(std::span(text)));
}

std::span<const std::byte> MessageReader::take(std::size_t size) {
  if (!ok_ || size > rest_.size()) {
    ok_ = false;
    return {};
  }
  const auto part = rest_.first(size);
  rest_ = rest_.subspan(size);
  return part;
}

std::uint64_t MessageReader::integer(std::size_t size) {
  std::uint64_t value = 0;
  int shift = 0;
  for (const std::byte byte : take(size)) {
    value |= std::to_integer<std::uint64_t>(byte) << shift;
    shift += 8;
  }
  return value;
}

double MessageReader::f64() { return std::bit_cast<double>(u64()); }

std::string MessageReader::string() {
  const auto part = take(u32());
  return {reinterpret_cast<const char*>(part.data()), part.size()};
}

absl::Status MessageReader::finish(std::string_view what) const {
  if (!ok_) {
    return base::error(absl::StatusCode::kInvalidArgument, "{} is cut short", what);
  }
  if (!rest_.empty()) {
    return base::error(absl::StatusCode::kInvalidArgument, "{} has {} bytes too many", what, rest_.size());
  }
  return absl::OkStatus();
}

absl::Status send_message(int fd, std::span<const std::byte> payload, base::TimePoint deadline, std::string_view what) {
  MAYPOLE_CHECK_LE(payload.size(), std::numeric_limits<std::uint32_t>::max());
  MessageWriter frame;
  frame.put_u32(static_cast<std::uint32_t>(payload.size()));
  frame.put_bytes(payload);
  return send_all(fd, frame.bytes(), deadline, what);
}

absl::StatusOr<std::vector<std::byte>> receive_message(int fd, std::size_t limit, base::TimePoint deadline, std::string_view what) {
  std::vector<std::byte> header(kFrameHeaderSize);
  MAYPOLE_RETURN_IF_ERROR(receive_all(fd, header, deadline, what));
  const std::size_t size = MessageReader(header).u32();
  if (size > limit) {
    return base::error(absl::StatusCode::kInvalidArgument, "{} announces a message of {} bytes where at most {} are allowed", what, size,
                       limit);
  }
  std::vector<std::byte> payload(size);
  MAYPOLE_RETURN_IF_ERROR(receive_all(fd, payload, deadline, what));
  return payload;
}

}  // namespace maypole::net
