// SPDX-License-Identifier: Apache-2.0
// Collectives over links that delay, break and freeze.
#include "maypole/comm/faulty_links.h"

#include "maypole/base/test_seed.h"
#include "maypole/comm/ring_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace maypole::comm {
namespace {

using ::testing::Each;

constexpr int kRanks = 4;
constexpr std::size_t kCount = 50'000;

class FaultyLinksTest : public ::testing::Test {
 protected:
  void form(base::Nanoseconds longest_delay, base::Nanoseconds silence) {
    auto ends = make_inproc_connections(kRanks, InprocKind::kStream, {});
    ASSERT_TRUE(ends.ok());
    auto links = FaultyLinks::put_between(*ends, base::test_seed(), longest_delay);
    ASSERT_TRUE(links.ok());
    links_ = *std::move(links);
    ring_.resize(kRanks);
    ProgressOptions options;
    options.silence = silence;
    on_every_rank([&](int rank) {
      auto made = communicator_over(rank, std::move((*ends)[static_cast<std::size_t>(rank)]), options);
      ASSERT_TRUE(made.ok()) << made.status();
      ring_[static_cast<std::size_t>(rank)] = *std::move(made);
    });
  }

  template <typename F>
  static void on_every_rank(F f) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&f, rank] { f(rank); });
    }
  }

  /// The end of all-reduces on each rank: after `count` of them, or the first error.
  std::vector<absl::StatusCode> reduce(int count) {
    std::vector<absl::StatusCode> ends(kRanks, absl::StatusCode::kOk);
    on_every_rank([&](int rank) {
      for (int k = 0; k < count && ends[static_cast<std::size_t>(rank)] == absl::StatusCode::kOk; ++k) {
        std::vector<float> data(kCount, static_cast<float>(rank));
        const absl::Status status =
            ring_[static_cast<std::size_t>(rank)]
                ->all_reduce(reinterpret_cast<std::byte*>(data.data()), kCount, base::DType::kFloat32, ReduceOp::kSum)
                .wait();
        ends[static_cast<std::size_t>(rank)] = status.code();
        if (status.ok()) {
          EXPECT_THAT(data, Each(0 + 1 + 2 + 3));
        }
      }
    });
    return ends;
  }

  std::unique_ptr<FaultyLinks> links_;
  std::vector<std::unique_ptr<Communicator>> ring_;
};

TEST_F(FaultyLinksTest, WhatIsLateArrivesWhole) {
  form(std::chrono::milliseconds(2), std::chrono::minutes(1));
  EXPECT_THAT(reduce(3), Each(absl::StatusCode::kOk));
  on_every_rank([&](int rank) { EXPECT_TRUE(ring_[static_cast<std::size_t>(rank)]->finalize(std::chrono::minutes(1)).ok()); });
}

TEST_F(FaultyLinksTest, ACutWithinAFrameEndsTheOperationOnEveryRank) {
  form({}, std::chrono::minutes(1));
  links_->arm({FaultKind::kCut, 2, 7});
  EXPECT_THAT(reduce(1000), Each(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(links_->happened());
}

TEST_F(FaultyLinksTest, ALostRankEndsTheOperationOnEveryRank) {
  form({}, std::chrono::minutes(1));
  links_->arm({FaultKind::kDrop, 1, 5});
  EXPECT_THAT(reduce(1000), Each(absl::StatusCode::kUnavailable));
}

TEST_F(FaultyLinksTest, AFrozenRankEndsTheOperationOnEveryRankByItsSilence) {
  form({}, std::chrono::seconds(2));
  links_->arm({FaultKind::kFreeze, 3, 5});
  EXPECT_THAT(reduce(1000), Each(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace maypole::comm
