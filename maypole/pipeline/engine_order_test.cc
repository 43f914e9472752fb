// SPDX-License-Identifier: Apache-2.0

// Several models in motion at once: what one rank waits for never stands behind what another rank does not take yet, and where ranks do
// wait for one another, they are told.

#include "maypole/base/test_seed.h"
#include "maypole/comm/ring_communicator.h"
#include "maypole/pipeline/engine.h"
#include "maypole/pipeline/fake_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace maypole::pipeline {
namespace {

using base::DType;
using overlap::UpdateMode;
using ::testing::HasSubstr;

constexpr int kNumRanks = 2;
const StepOptions kStep{.hyper = {{.lr = 0.5}}};

class EngineOrderTest : public ::testing::Test {
 protected:
  /// Runs `body` on every rank with an engine that holds two models, ids 0 and 1.
  static void run_ranks(std::vector<std::unique_ptr<comm::Communicator>> ring, UpdateMode update,
                        const std::function<void(Engine&, int rank)>& body) {
    std::vector<std::jthread> threads;
    for (int r = 0; r < kNumRanks; ++r) {
      threads.emplace_back([&body, update, r, communicator = std::move(ring[static_cast<std::size_t>(r)])]() mutable {
        auto engine = Engine::create(std::move(communicator), {.timeout = std::chrono::seconds(10)});
        ASSERT_TRUE(engine.ok());
        ModelOptions options;
        options.schedule = "dear";
        options.update = update;
        options.optimizer = OptimizerKind::kSgd;
        for (int m = 0; m < 2; ++m) {
          ASSERT_TRUE((*engine)->add_model({{"weight", 1000, DType::kFloat32, 0}}, options).ok());
        }
        body(**engine, r);
      });
    }
  }

  static void go_backward(Engine& engine, ModelId model) { ASSERT_TRUE(engine.gradient_ready(model, 0, nullptr).ok()); }
};

TEST_F(EngineOrderTest, AParameterIsThereBeforeAModelThatStepsLaterIsSteppedEverywhere) {
  // This ring keeps to the order in which a rank supplies gathers, whatever their priorities: the real one does when it is quick.
  run_ranks(make_fake_ring(kNumRanks, base::test_seed()), UpdateMode::kSharded, [](Engine& engine, int rank) {
    for (int iteration = 0; iteration < 100; ++iteration) {
      go_backward(engine, 0);
      go_backward(engine, 1);
      ASSERT_TRUE(engine.end_backward(0).ok());
      // Then both may be gathered at once when they are stepped, which the engine thread may see of both together.
      ASSERT_TRUE(engine.synchronize(0).ok());
      ASSERT_TRUE(engine.synchronize(1).ok());
      ASSERT_TRUE(engine.step(1, kStep).ok());
      if (rank == 1) {  // as a script does that prints a weight on one rank
        ASSERT_TRUE(engine.before_use(1, 0).ok()) << iteration;
      }
      ASSERT_TRUE(engine.step(0, kStep).ok());
      ASSERT_TRUE(engine.before_use(0, 0).ok()) << iteration;
      ASSERT_TRUE(engine.before_use(1, 0).ok()) << iteration;
    }
  });
}

TEST_F(EngineOrderTest, RanksThatWaitForDifferentModelsAreToldWhatEachWaitsFor) {
  comm::ProgressOptions progress;
  progress.silence = std::chrono::seconds(4);
  progress.standstill = std::chrono::milliseconds(500);
  auto ring = comm::make_inproc_ring(kNumRanks, comm::InprocKind::kSharedMemory, progress);
  ASSERT_TRUE(ring.ok()) << ring.status();
  run_ranks(*std::move(ring), UpdateMode::kReplicated, [](Engine& engine, int rank) {
    go_backward(engine, 0);
    go_backward(engine, 1);
    ASSERT_TRUE(engine.end_backward(0).ok());
    const auto mine = static_cast<ModelId>(rank);
    ASSERT_TRUE(engine.step(mine, kStep).ok());
    const absl::Status status = engine.before_use(mine, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    const std::string text(status.message());
    EXPECT_THAT(text, HasSubstr("a deadlock: every rank waits"));
    EXPECT_THAT(text,
                HasSubstr("rank 0 waits for parameter 'weight' (0 of model 0) (of 1 groups of model 0, 1 are reduced and 0 gathered)"));
    EXPECT_THAT(text,
                HasSubstr("rank 1 waits for parameter 'weight' (0 of model 1) (of 1 groups of model 1, 1 are reduced and 0 gathered)"));
  });
}

}  // namespace
}  // namespace maypole::pipeline
