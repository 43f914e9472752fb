// SPDX-License-Identifier: Apache-2.0
#pragma once

// Records what happened when, for a trace viewer (Chrome trace events, which Perfetto opens).

#include "maypole/base/mutex.h"
#include "maypole/base/units.h"

#include <absl/status/status.h>

#include <string>
#include <vector>

namespace maypole::pipeline {

enum class Track : int { kCompute = 0, kReduceScatter = 1, kAllGather = 2, kUpdate = 3, kWait = 4 };

class Timeline {
 public:
  Timeline(bool enabled, int rank);

  /// Thread: any. Does nothing when not enabled. The events of one track must not overlap.
  void record(Track track, std::string name, base::TimePoint begin, base::TimePoint end);

  /// Writes all events: times are microseconds of the wall clock, so that files of several ranks can be laid over each other.
  [[nodiscard]] absl::Status write(const std::string& path) const;

 private:
  struct Event {
    Track track;
    std::string name;
    base::TimePoint begin;
    base::TimePoint end;
  };
  const bool enabled_;
  const int rank_;
  const base::Nanoseconds wall_offset_;  // wall clock minus steady clock, once, so that a clock that is set does not bend the picture
  mutable base::Mutex mutex_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace maypole::pipeline
