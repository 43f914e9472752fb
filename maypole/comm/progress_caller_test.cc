// SPDX-License-Identifier: Apache-2.0
// Callers that move their own collectives. That the results are right is the business of collectives_test.cc; here it is about who does
// the work, and about callers that are at it when something ends.
#include "maypole/comm/ring_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace maypole::comm {
namespace {

using base::DType;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class ProgressCallerTest : public ::testing::TestWithParam<InprocKind> {
 protected:
  static std::vector<std::unique_ptr<Communicator>> make_ring() { return make_inproc_ring(2, GetParam()).value(); }
};

/// Starts an all-reduce of one number that calls `on_done`.
Work start_sum(Communicator& comm, float& number, std::function<void()> on_done = nullptr) {
  const Work work = comm.all_reduce(reinterpret_cast<std::byte*>(&number), 1, DType::kFloat32, ReduceOp::kSum);
  if (on_done != nullptr) {
    work.on_done([on_done = std::move(on_done)](const absl::Status&) { on_done(); });
  }
  return work;
}

TEST_P(ProgressCallerTest, WhileTheProgressThreadSleepsACallerMovesItsOwnCollective) {
  auto ring = make_ring();
  std::vector<std::jthread> ranks;
  for (const auto& comm : ring) {
    ranks.emplace_back([&comm] {
      int moved_here = 0;
      for (int k = 0; k < 200; ++k) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the progress thread has nothing to do, and sleeps
        float number = 1;
        const Work sum = start_sum(*comm, number, [&, caller = std::this_thread::get_id()] {
          moved_here += static_cast<int>(std::this_thread::get_id() == caller);
        });
        ASSERT_TRUE(sum.wait().ok());
        ASSERT_EQ(number, 2);
      }
      EXPECT_GT(moved_here, 0);  // how often depends on the machine
    });
  }
}

TEST_P(ProgressCallerTest, CallbacksOfOtherLanesNeverRunOnACaller) {
  auto ring = make_ring();
  std::vector<std::jthread> ranks;
  for (const auto& comm : ring) {
    ranks.emplace_back([&comm] {
      const std::thread::id caller = std::this_thread::get_id();
      std::atomic<int> moved_here = 0;
      for (std::uint64_t k = 0; k < 100; ++k) {
        std::vector<float> gradients(5000, 1);
        const Work group = comm->reduce_scatter_group({k, reinterpret_cast<std::byte*>(gradients.data()), model::whole_buffer(5000),
                                                       DType::kFloat32, DType::kFloat32, ReduceOp::kSum});
        std::atomic<bool> called = false;
        std::atomic<bool> watching = false;  // not yet: the callback of an operation that is done runs at once, here
        group.on_done([&](const absl::Status&) {
          moved_here += static_cast<int>(watching && std::this_thread::get_id() == caller);
          called = true;
        });
        watching = true;
        float number = 1;
        ASSERT_TRUE(start_sum(*comm, number).wait().ok());
        ASSERT_TRUE(group.wait().ok());
        while (!called) {
          std::this_thread::yield();
        }
      }
      EXPECT_EQ(moved_here, 0);
    });
  }
}

TEST_P(ProgressCallerTest, ACallerLearnsThatAPeerHasAborted) {
  for (int k = 0; k < 20; ++k) {
    auto ring = make_ring();
    float number = 1;
    const Work sum = start_sum(*ring[0], number);
    const std::jthread aborting([&ring, k] {
      std::this_thread::sleep_for(std::chrono::microseconds(30 * k));
      ring[1]->abort(absl::AbortedError("rank 1 is lost: it gave up"));
    });
    EXPECT_THAT(std::string(sum.wait().message()), HasSubstr("rank 1 is lost: it gave up"));
  }
}

TEST_P(ProgressCallerTest, ACallerMayStillWaitWhenItsRingIsClosed) {
  for (int k = 0; k < 50; ++k) {
    auto ring = make_ring();
    float number = 1;
    const Work sum = start_sum(*ring[0], number);
    const std::jthread waiting([&sum] { EXPECT_THAT(std::string(sum.wait().message()), AnyOf(HasSubstr("closed"), HasSubstr("lost"))); });
    std::this_thread::sleep_for(std::chrono::microseconds(20 * k));
    ring[0].reset();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ProgressCallerTest, ::testing::Values(InprocKind::kStream, InprocKind::kSharedMemory));

}  // namespace
}  // namespace maypole::comm
