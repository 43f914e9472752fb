// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/units.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace maypole::comm {

/// How fast an edge carries what it is given, seen while it works. A link counts only while it is pressed: the kernel takes no more bytes,
/// so what it takes next is what the link has carried since. A probe cannot tell this: shaped links let a burst pass at once, which is over
/// before a link is pressed.
///
/// Pressed time is cut into samples of at least kSampleBytes, and the median of the last kKept counts: a peer that does not read presses as
/// well, and what is left of a burst makes a sample short. Progress thread, but for seconds_per_byte().
class LinkMeter {
 public:
  /// Now the kernel has taken `taken` bytes since the beginning; `pressed`: it takes no more.
  void note(base::TimePoint now, std::uint64_t taken, bool pressed);
  /// Payload and headers alike; 0 before enough was seen. Thread: any.
  [[nodiscard]] double seconds_per_byte() const { return seconds_per_byte_.load(std::memory_order_relaxed); }

  static constexpr std::uint64_t kSampleBytes = 2 << 20;
  static constexpr std::size_t kFewest = 4;  // samples
  static constexpr std::size_t kKept = 64;

 private:
  void add_sample(double seconds_per_byte);

  bool pressed_ = false;
  base::TimePoint since_{};  // of what is not in sample_ yet
  std::uint64_t taken_ = 0;
  base::Nanoseconds sample_time_{};
  std::uint64_t sample_bytes_ = 0;
  std::vector<double> samples_;  // a ring
  std::size_t next_ = 0;
  std::atomic<double> seconds_per_byte_{0};
};

}  // namespace maypole::comm
