// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes of one HTTP connection, of which a request may have only so many, and for which it may take only so long. The HTTP library
// bounds neither the time in which a request drips in, nor a body that comes in chunks, nor the number and length of header lines.

#include "maypole/base/units.h"

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <functional>
#include <utility>

namespace maypole::daemon {

struct StreamLimits {
  std::size_t request_bytes = 0;
  base::Nanoseconds request{};  // from a request's first byte to its last
  base::Nanoseconds write{};    // for what is written at once
};

/// Borrows the socket. A limit that was passed makes every later call fail: the connection is to be closed.
class BoundedStream {
 public:
  /// `stopping` is asked now and then: true ends what waits.
  BoundedStream(int socket, const StreamLimits& limits, std::function<bool()> stopping)
      : socket_(socket), limits_(limits), stopping_(std::move(stopping)) {}

  /// Waits for the first byte of a request, whose limits begin with it. False: none came within `idle`, or the connection is over.
  [[nodiscard]] bool begin_request(base::Nanoseconds idle);
  [[nodiscard]] bool broken() const { return broken_; }
  /// Takes what is still coming, as far as that is little: a close before it would also take the answer from the peer.
  void drain();

  /// False as well once the peer has closed its end, which whoever writes for a long time wants to know.
  [[nodiscard]] bool is_writable() const;
  /// As read(2): some bytes, or -1; what is written is written whole.
  ssize_t read(char* target, std::size_t size);
  ssize_t write(const char* bytes, std::size_t size);
  [[nodiscard]] int socket() const { return socket_; }

 private:
  [[nodiscard]] bool fill(base::TimePoint deadline);

  int socket_;
  StreamLimits limits_;
  std::function<bool()> stopping_;
  std::array<char, 16U << 10U> buffer_{};
  std::size_t next_ = 0;  // what is in the buffer and was not read
  std::size_t end_ = 0;
  std::size_t taken_ = 0;  // by this request
  base::TimePoint deadline_{};
  bool broken_ = false;
};

}  // namespace maypole::daemon
