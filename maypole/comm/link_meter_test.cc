// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/link_meter.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace maypole::comm {
namespace {

/// A link behind a token bucket, and a kernel that holds some bytes of its own; time passes in steps.
class ShapedLink {
 public:
  explicit ShapedLink(LinkMeter& meter) : meter_(meter) {}

  /// Offers `bytes` and carries all of them, unless `peer_reads` is false, which lasts for `stall`.
  void carry(double bytes, base::Nanoseconds stall = {}) {
    double waiting = bytes;
    for (base::Nanoseconds stood{}; waiting > 0 || held_ > 0; pass(kStep)) {
      const bool stalled = stood < stall;
      stood += kStep;
      for (int i = 0; i < 2; ++i) {  // what passes as a burst makes room at once
        const double taken = std::min(waiting, kKernel - held_);
        waiting -= taken;
        held_ += taken;
        taken_ += taken;
        const double carried = stalled ? 0 : std::min(held_, tokens_);
        held_ -= carried;
        tokens_ -= carried;
      }
      meter_.note(now_, static_cast<std::uint64_t>(taken_), waiting > 0);
    }
  }
  void pass(base::Nanoseconds time) {
    now_ += time;
    tokens_ = std::min(kBurst, tokens_ + kRate * base::to_seconds(time));
  }

  static constexpr double kRate = 12.5e6;
  static constexpr double kBurst = 128e3;
  static constexpr double kKernel = 256e3;
  static constexpr base::Nanoseconds kStep = std::chrono::microseconds(200);

 private:
  LinkMeter& meter_;
  base::TimePoint now_{std::chrono::hours(1)};
  double tokens_ = kBurst;
  double held_ = 0;
  double taken_ = 0;
};

constexpr double kTrue = 1 / ShapedLink::kRate;

TEST(LinkMeter, SeesTheRateOfAShapedLinkAndNotItsBurst) {
  LinkMeter meter;
  ShapedLink link(meter);
  for (int i = 0; i < 20; ++i) {  // each after a pause in which the bucket has filled again
    link.carry(4e6);
    link.pass(std::chrono::milliseconds(100));
  }
  EXPECT_NEAR(meter.seconds_per_byte() / kTrue, 1, 0.02);
}

TEST(LinkMeter, SaysNothingOfALinkThatIsNeverPressed) {
  LinkMeter meter;
  ShapedLink link(meter);
  for (int i = 0; i < 1000; ++i) {
    link.carry(100e3);
    link.pass(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(meter.seconds_per_byte(), 0);
}

TEST(LinkMeter, APeerThatReadsLateOnlySometimesDoesNotCount) {
  LinkMeter meter;
  ShapedLink link(meter);
  for (int i = 0; i < 40; ++i) {
    link.carry(3e6, i % 3 == 0 ? std::chrono::milliseconds(500) : std::chrono::milliseconds(0));
  }
  EXPECT_NEAR(meter.seconds_per_byte() / kTrue, 1, 0.05);
}

TEST(LinkMeter, ForgetsWhatALinkWasBefore) {
  LinkMeter meter;
  base::TimePoint now{std::chrono::hours(1)};
  std::uint64_t taken = 0;
  for (const double rate : {1e6, 1e8}) {
    for (std::size_t i = 0; i <= 2 * LinkMeter::kKept; ++i) {
      meter.note(now, taken, true);
      taken += LinkMeter::kSampleBytes;
      now += base::from_seconds(static_cast<double>(LinkMeter::kSampleBytes) / rate);
    }
    EXPECT_NEAR(meter.seconds_per_byte() * rate, 1, 1e-3);
  }
}

}  // namespace
}  // namespace maypole::comm
