// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/deadlock_watch.h"

#include "maypole/comm/ring_communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace maypole::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

base::TimePoint at(double s) { return base::TimePoint{} + seconds(1000) + base::from_seconds(s); }

/// Three ranks that stand since second 0, with a limit of 10 s.
class DeadlockWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t r = 0; r < 3; ++r) {
      watches_.emplace_back(r, seconds(10));
      EXPECT_FALSE(watches_[r].stands(at(0)));
      waits_.emplace_back(Wait{at(0), fmt::format("the frames of rank {}", (r + 2) % 3)});
    }
  }
  /// Sends a token past ranks 1 and 2, and back to rank 0.
  std::optional<DeadlockWatch::Token> around(std::optional<DeadlockWatch::Token> token, double s) {
    for (const std::size_t r : {std::size_t{1}, std::size_t{2}, std::size_t{0}}) {
      token = token ? watches_[r].pass(*token, waits_[r], at(s)) : std::nullopt;
    }
    return token;
  }
  std::vector<DeadlockWatch> watches_;
  std::vector<std::optional<Wait>> waits_;
};

TEST_F(DeadlockWatchTest, TwoRoundsOfATokenNameWhatEveryRankWaitsFor) {
  EXPECT_FALSE(watches_[0].begin(waits_[0], at(9)));
  const auto second = around(watches_[0].begin(waits_[0], at(10)), 10.1);
  ASSERT_TRUE(second);
  EXPECT_EQ(watches_[0].verdict(), "");
  EXPECT_FALSE(around(second, 10.2));
  EXPECT_EQ(watches_[0].verdict(),
            "rank 0 waits for the frames of rank 2; rank 1 waits for the frames of rank 0; rank 2 waits for the frames of rank 1");
}

TEST_F(DeadlockWatchTest, ARankThatComputesEndsTheToken) {
  waits_[2].reset();
  EXPECT_FALSE(around(watches_[0].begin(waits_[0], at(50)), 50));
}

TEST_F(DeadlockWatchTest, ARankThatHasWaitedForLessThanTheLimitEndsTheToken) {
  waits_[2]->since = at(45);
  EXPECT_FALSE(around(watches_[0].begin(waits_[0], at(50)), 50));
}

TEST_F(DeadlockWatchTest, ARankThatMovesBetweenTheRoundsEndsTheToken) {
  const auto second = around(watches_[0].begin(waits_[0], at(10)), 10);
  watches_[1].moved();
  EXPECT_FALSE(around(second, 10));
  EXPECT_EQ(watches_[0].verdict(), "");
}

TEST_F(DeadlockWatchTest, ARankThatWaitsForSomethingElseInTheSecondRoundEndsTheToken) {
  const auto second = around(watches_[0].begin(waits_[0], at(10)), 10);
  waits_[2]->since = at(11);
  EXPECT_FALSE(around(second, 30));
  EXPECT_EQ(watches_[0].verdict(), "");
}

TEST_F(DeadlockWatchTest, AnEndedTokenIsFollowedByAnother) {
  watches_[1].moved();
  EXPECT_FALSE(around(watches_[0].begin(waits_[0], at(10)), 10));
  EXPECT_FALSE(watches_[0].begin(waits_[0], at(11)));
  EXPECT_FALSE(around(around(watches_[0].begin(waits_[0], at(21)), 21), 21));
  EXPECT_NE(watches_[0].verdict(), "");
}

// --- over a ring ---

ProgressOptions impatient() {
  ProgressOptions options;
  options.silence = seconds(4);  // eight looks in it
  options.standstill = milliseconds(400);
  return options;
}

class DeadlockOverRingTest : public ::testing::TestWithParam<InprocKind> {};

TEST_P(DeadlockOverRingTest, RanksThatWaitForOneAnotherInACircleAreTold) {
  auto ring = make_inproc_ring(3, GetParam(), impatient());
  ASSERT_TRUE(ring.ok()) << ring.status();
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      std::array<float, 64> data{};
      // Every rank has opened the gather, and none supplies it before it has ended.
      const Work work = (*ring)[r]->open_all_gather(
          {.tag = 7, .data = reinterpret_cast<std::byte*>(data.data()), .range = model::whole_buffer(data.size())});
      const absl::Status status = work.wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      const std::string text(status.message());
      EXPECT_THAT(text, HasSubstr("a deadlock: every rank waits, and nothing has moved for 0.4 s"));
      for (std::size_t other = 0; other < 3; ++other) {
        EXPECT_THAT(text, HasSubstr(fmt::format("rank {} waits for all-gather 7 of 64 float32 elements", other)));
      }
    });
  }
}

TEST_P(DeadlockOverRingTest, APeerThatComputesOrWaitsWithALimitMayTakeItsTime) {
  auto ring = make_inproc_ring(3, GetParam(), impatient());
  ASSERT_TRUE(ring.ok()) << ring.status();
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      if (r == 1) {
        std::this_thread::sleep_for(5 * impatient().standstill);
      }
      const Work work = (*ring)[r]->barrier();
      if (r == 2) {
        while (work.wait_for(10 * impatient().standstill).code() == absl::StatusCode::kDeadlineExceeded) {
        }
      }
      EXPECT_TRUE(work.wait().ok());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DeadlockOverRingTest, ::testing::Values(InprocKind::kSharedMemory, InprocKind::kStream));

}  // namespace
}  // namespace maypole::comm
