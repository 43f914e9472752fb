// SPDX-License-Identifier: Apache-2.0
#pragma once

// What changed, in order, for those who look on (server-sent events). The daemon's core appends; readers keep a position and read at their
// own pace. The log keeps so many events and no more: a reader who falls behind it has lost its place, and nobody waits for it.
//
// An event's id is LIFE-NUMBER. A life is that of one log: after a restart of the daemon ids of the last one mean nothing, and its reader
// begins anew.

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::daemon {

struct EventLimits {
  std::size_t count = 1U << 14U;
  std::size_t bytes = 8U << 20U;
};

/// Thread-safe.
class EventLog {
 public:
  explicit EventLog(const EventLimits& limits = {});

  /// `data` is one line. Nobody is woken before publish().
  void append(std::string_view type, std::string_view data);
  void publish();
  /// Ends the streams of a reader, by the name of its token, at the next look.
  void cut_off(const std::string& reader);
  [[nodiscard]] std::vector<std::string> take_cut_off();

  struct Start {
    std::uint64_t next = 0;
    std::string text;  // what the stream begins with
  };
  /// Where one goes on who has seen that event last. One who has seen none, or none that is known, begins behind the newest with an event
  /// `start`: what it knows from before, or does not know, is to be asked for.
  [[nodiscard]] Start start(std::string_view last_event_id) const;

  struct Part {
    std::string text;
    std::uint64_t next = 0;
  };
  /// Events from `next` on, whole ones and about `most_bytes`; empty where there is none yet. None: it is no longer kept.
  [[nodiscard]] std::optional<Part> read(std::uint64_t next, std::size_t most_bytes) const;

  /// Readable after publish() until silence().
  [[nodiscard]] int fd() const { return bell_.get(); }
  void silence();

 private:
  [[nodiscard]] std::uint64_t first() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return next_ - events_.size(); }

  EventLimits limits_;
  std::string life_;
  base::Fd bell_;
  mutable base::Mutex mutex_;
  std::deque<std::string> events_ ABSL_GUARDED_BY(mutex_);  // as the stream has them; the last is number next_ - 1
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::string> cut_off_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace maypole::daemon
