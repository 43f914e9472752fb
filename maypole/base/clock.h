// SPDX-License-Identifier: Apache-2.0
#pragma once

// Time as a seam: what measures or waits takes a Clock, so that tests and the simulator decide what time it is.

#include "maypole/base/units.h"

namespace maypole::base {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Never goes back.
  [[nodiscard]] virtual TimePoint now() const = 0;
};

/// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

/// Stands still until it is moved.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return now_; }
  void advance(Nanoseconds duration) { now_ += duration; }

 private:
  TimePoint now_;
};

}  // namespace maypole::base
