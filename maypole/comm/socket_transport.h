// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/comm/transport.h"

#include <string>

namespace maypole::comm {

/// Frames over a connected, non-blocking stream socket: header, then payload. The socket is owned by the link.
class SocketWriter : public FrameWriter {
 public:
  SocketWriter(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {}
  [[nodiscard]] bool writable() const override { return !busy_; }
  void write(const OutgoingFrame& frame) override;
  [[nodiscard]] absl::StatusOr<bool> pump() override;
  /// What the kernel has taken since the beginning.
  [[nodiscard]] std::uint64_t bytes_taken() const { return bytes_taken_; }

 private:
  int fd_;
  std::string peer_;
  std::uint64_t bytes_taken_ = 0;
  bool busy_ = false;  // invariant: busy_ <=> sent_ < sizeof(FrameHeader) + frame_.header.bytes
  OutgoingFrame frame_;
  std::size_t sent_ = 0;
};

/// Has the kernel space the packets of a connection whose round trip takes a millisecond or more. Both ranks send at once, so unpaced
/// acknowledgements wait behind the other direction's burst, and the link rests for the delay whenever a window has left: at 1 Gbit/s
/// and 5 ms a sixth of the time. On short ways pacing would gain nothing and cost speed above 10 Gbit/s.
void pace_if_far(int fd);

class SocketReader : public FrameReader {
 public:
  SocketReader(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {}
  [[nodiscard]] absl::StatusOr<bool> poll(FrameSink& sink) override;
  [[nodiscard]] bool stalled() const override { return state_ == State::kWaiting; }

 private:
  enum class State { kHeader, kWaiting, kPayload };
  /// Reads into [into + have, into + want); returns 0 when nothing is there.
  [[nodiscard]] absl::StatusOr<std::size_t> read_some(std::byte* into, std::size_t want);

  int fd_;
  std::string peer_;
  State state_ = State::kHeader;
  FrameHeader header_;
  std::byte* into_ = nullptr;
  std::size_t have_ = 0;
};

}  // namespace maypole::comm
