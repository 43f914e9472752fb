// SPDX-License-Identifier: Apache-2.0
#pragma once

// One lane of one link: frames go in at one end and come out at the other, in order, each exactly once.
//
// Two transports implement it: sockets (socket_transport.h: TCP between hosts) copy bytes through the kernel; shared memory
// (shm_transport.h) passes descriptors, and the receiver reads the sender's memory in place. Everything here runs on the progress
// thread and never blocks.

#include "maypole/comm/frame.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>

namespace maypole::comm {

/// Told when a frame's payload is no longer needed at the sender: the kernel has copied it, or the peer has read it.
class SendObserver {
 public:
  virtual ~SendObserver() = default;
  virtual void on_sent(std::byte* buffer) = 0;
};

struct OutgoingFrame {
  FrameHeader header;
  const std::byte* payload = nullptr;  // stays valid until on_sent
  SendObserver* observer = nullptr;
  std::byte* buffer = nullptr;  // handed back in on_sent: the pool buffer to release, or null
};

class FrameWriter {
 public:
  virtual ~FrameWriter() = default;
  /// Whether write() may be called now.
  [[nodiscard]] virtual bool writable() const = 0;
  virtual void write(const OutgoingFrame& frame) = 0;
  /// Moves what can be moved now; returns whether anything did. Errors: the peer is gone.
  [[nodiscard]] virtual absl::StatusOr<bool> pump() = 0;
};

/// Where received frames go.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// Whether the frame can be taken now; false leaves it, and all frames behind it, until a later poll. Errors: it does not fit.
  [[nodiscard]] virtual absl::StatusOr<bool> accept(const FrameHeader& header) = 0;
  /// Where a socket should put the payload of an accepted frame.
  [[nodiscard]] virtual std::byte* destination(const FrameHeader& header) = 0;
  /// The payload is here: at `destination` (sockets), or in the peer's memory (shared memory), valid during the call.
  [[nodiscard]] virtual absl::Status deliver(const FrameHeader& header, const std::byte* payload) = 0;
};

class FrameReader {
 public:
  virtual ~FrameReader() = default;
  /// Takes what has arrived, a bounded amount at a time; returns whether anything moved. Errors: the peer is gone, or a frame does not fit.
  [[nodiscard]] virtual absl::StatusOr<bool> poll(FrameSink& sink) = 0;
  /// A frame is waiting that the sink did not accept.
  [[nodiscard]] virtual bool stalled() const = 0;
};

}  // namespace maypole::comm
