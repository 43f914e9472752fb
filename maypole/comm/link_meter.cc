// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/link_meter.h"

#include <algorithm>

namespace maypole::comm {

void LinkMeter::note(base::TimePoint now, std::uint64_t taken, bool pressed) {
  if (pressed_) {
    sample_time_ += now - since_;
    sample_bytes_ += taken - taken_;
    if (sample_bytes_ >= kSampleBytes) {
      add_sample(base::to_seconds(sample_time_) / static_cast<double>(sample_bytes_));
      sample_time_ = {};
      sample_bytes_ = 0;
    }
  }
  pressed_ = pressed;
  since_ = now;
  taken_ = taken;
}

void LinkMeter::add_sample(double seconds_per_byte) {
  if (samples_.size() < kKept) {
    samples_.push_back(seconds_per_byte);
  } else {
    samples_[next_] = seconds_per_byte;
    next_ = (next_ + 1) % kKept;
  }
  if (samples_.size() >= kFewest) {
    std::vector<double> sorted = samples_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::ranges::nth_element(sorted, middle);
    seconds_per_byte_.store(*middle, std::memory_order_relaxed);  // read by whoever makes a report; nothing hangs on it
  }
}

}  // namespace maypole::comm
