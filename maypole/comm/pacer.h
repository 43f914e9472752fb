// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/units.h"

#include <algorithm>
#include <cstddef>

namespace maypole::comm {

/// Holds an edge to its reserved bandwidth as a link of that rate would: a frame leaves when its last byte would have been sent. One
/// frame at a time occupies the edge, so what waits behind it can still be overtaken by a lane that comes first.
/// Error of a transfer of n segments: none in the rate, timer lateness (some 0.1 ms) in the end time.
class Pacer {
 public:
  explicit Pacer(base::Bandwidth rate) : rate_(rate) {}
  [[nodiscard]] bool limited() const { return rate_.limited(); }
  /// What a byte takes at least; zero without a limit.
  [[nodiscard]] double seconds_per_byte() const { return limited() ? 1 / rate_.bytes_per_second : 0; }
  /// The time at which a frame of `bytes`, chosen now, has left.
  [[nodiscard]] base::TimePoint occupy(base::TimePoint now, std::size_t bytes) {
    // A timer that fired late must not cost rate: what was due in the last millisecond is caught up.
    const base::TimePoint start = std::max(free_at_, now - std::chrono::milliseconds(1));
    free_at_ = start + base::from_seconds(static_cast<double>(bytes) / rate_.bytes_per_second);
    return free_at_;
  }

 private:
  base::Bandwidth rate_;
  base::TimePoint free_at_{};
};

}  // namespace maypole::comm
