// SPDX-License-Identifier: Apache-2.0
#pragma once

// Records what happened when, for a trace viewer (Chrome trace events, which Perfetto opens).

#include "maypole/base/mutex.h"
#include "maypole/base/units.h"

#include <absl/status/status.h>

#include <cstddef>
#include <deque>
#include <string>

namespace maypole::pipeline {

enum class Track : int { kCompute = 0, kReduceScatter = 1, kAllGather = 2, kUpdate = 3, kWait = 4 };

class Timeline {
 public:
  Timeline(bool enabled, int rank);

  /// What an event is about: `RS group 3 of model 1`. Group -1: no group; model 0 is not written.
  struct What {
    const char* verb;  // a literal
    int group = -1;
    std::size_t model = 0;
  };

  /// Thread: any. Does nothing when not enabled. The events of one track must not overlap. Of a long run the latest are kept
  /// (kMaxEvents, some 30 MB).
  void record(Track track, const What& what, base::TimePoint begin, base::TimePoint end);

  /// Writes all events: times are microseconds of the wall clock, so that files of several ranks can be laid over each other.
  [[nodiscard]] absl::Status write(const std::string& path) const;

 private:
  static constexpr std::size_t kMaxEvents = 500'000;
  struct Event {
    Track track;
    What what;
    base::TimePoint begin;
    base::TimePoint end;
  };
  const bool enabled_;
  const int rank_;
  const base::Nanoseconds wall_offset_;  // wall clock minus steady clock, once, so that a clock that is set does not bend the picture
  mutable base::Mutex mutex_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace maypole::pipeline
