// SPDX-License-Identifier: Apache-2.0
#pragma once

// The connections on which an EventLog is read, all served by one thread. A stream costs its place in the log, at most one part of it that
// is being sent, and its socket's buffer. Who does not keep up is cut off: the log goes on without it.

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"
#include "maypole/base/units.h"
#include "maypole/daemon/event_log.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace maypole::daemon {

struct StreamsLimits {
  std::size_t streams = 512;
  base::Nanoseconds heartbeat = std::chrono::seconds(15);  // a comment after so long a silence: what is between keeps the connection open
  base::Nanoseconds patience = std::chrono::seconds(30);   // with a reader that takes no byte
};

/// Thread-safe. Borrows the log.
class EventStreams {
 public:
  explicit EventStreams(EventLog& log, const StreamsLimits& limits = {});
  ~EventStreams();
  EventStreams(const EventStreams&) = delete;
  EventStreams& operator=(const EventStreams&) = delete;

  /// Takes over a connection whose request has been read. False: there are too many, and the socket is still the caller's.
  [[nodiscard]] bool add(base::Fd& socket, const std::string& reader, std::string_view last_event_id);
  /// For tests and metrics.
  [[nodiscard]] std::size_t size() const;

 private:
  struct Stream;
  void run(const std::stop_token& stop);
  void serve(std::vector<std::unique_ptr<Stream>>& streams, base::TimePoint now);

  EventLog* log_;
  StreamsLimits limits_;
  mutable base::Mutex mutex_;
  std::vector<std::unique_ptr<Stream>> added_ ABSL_GUARDED_BY(mutex_);
  std::size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

}  // namespace maypole::daemon
