// SPDX-License-Identifier: Apache-2.0
// Models that come and go: their numbers and their memory.
#include "maypole/pipeline/engine.h"
#include "maypole/pipeline/engine_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <memory>

namespace maypole::pipeline {
namespace {

using overlap::UpdateMode;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(EngineModels, AModelThatIsRemovedMakesRoomForAnother) {
  run_ranks(2, kPatient, [](Engine& engine, int) {
    for (int k = 1; k <= 300; ++k) {  // more than there are numbers
      const auto model = engine.add_model(two_parameters(), options_for("weave"));
      ASSERT_TRUE(model.ok()) << model.status();
      ASSERT_TRUE(go_backward(engine, *model, static_cast<float>(k)).ok());
      ASSERT_TRUE(engine.step(*model, kStep).ok());
      ASSERT_TRUE(engine.flush(*model).ok());
      ASSERT_THAT(floats(engine.parameter(*model, 0)), Each(-0.5f * static_cast<float>(k)));
      ASSERT_EQ(engine.remove_model(*model, false), absl::OkStatus());
    }
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(EngineModels, ANumberComesAgainOnlyWhenEveryRankHasRemovedItsModel) {
  run_ranks(3, kPatient, [](Engine& engine, int rank) {
    const ModelId first = engine.add_model(two_parameters(), options_for("weave")).value();
    if (rank != 1) {
      ASSERT_TRUE(engine.remove_model(first, false).ok());
    }
    const ModelId second = engine.add_model(two_parameters(), options_for("weave")).value();
    EXPECT_NE(second, first);
    ASSERT_TRUE(go_backward(engine, second, 2).ok());
    ASSERT_TRUE(engine.step(second, kStep).ok());
    ASSERT_TRUE(engine.flush(second).ok());
    EXPECT_THAT(floats(engine.parameter(second, 1)), Each(-1.0f));
    if (rank == 1) {
      ASSERT_TRUE(engine.remove_model(first, false).ok());
    }
    EXPECT_EQ(engine.add_model(two_parameters(), options_for("weave")).value(), first);
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(EngineModels, AModelIsNotRemovedInTheMiddleOfAnIteration) {
  run_ranks(2, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    ASSERT_TRUE(go_backward(engine, model, 1).ok());
    EXPECT_EQ(engine.remove_model(model, false).code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE(engine.discard_gradients(model).ok());
    EXPECT_EQ(engine.remove_model(model, false), absl::OkStatus());
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(EngineModels, TheStateOfAModelThatIsGoneOnAPeerCannotBeRead) {
  std::latch removed(2);
  run_ranks(2, kPatient, [&](Engine& engine, int rank) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave", UpdateMode::kSharded, OptimizerKind::kAdam)).value();
    if (rank == 1) {
      ASSERT_TRUE(engine.remove_model(model, true).ok());
    }
    removed.arrive_and_wait();
    if (rank == 0) {
      EXPECT_THAT(text(engine.read_state(model, 0, 0).status()), HasSubstr("rank 1 has closed the optimizer"));
    }
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(EngineModels, ShardsStayUntilNoRankCanReadThem) {
  std::latch removed(2);
  run_ranks(2, kPatient, [&](Engine& engine, int rank) {
    const ModelOptions options = options_for("weave", UpdateMode::kSharded, OptimizerKind::kAdam);
    const ModelId model = engine.add_model(two_parameters(), options).value();
    const std::weak_ptr<const void> shard = engine.handles(model).state[0];
    if (rank == 1) {
      ASSERT_TRUE(engine.remove_model(model, false).ok());
    }
    removed.arrive_and_wait();
    if (rank == 0) {
      EXPECT_EQ(engine.read_state(model, 0, 0).status(), absl::OkStatus());
    }
    const ModelId second = engine.add_model(two_parameters(), options).value();
    EXPECT_NE(second, model);
    EXPECT_FALSE(shard.expired());
    if (rank == 0) {
      ASSERT_TRUE(engine.remove_model(model, false).ok());
    }
    EXPECT_EQ(engine.add_model(two_parameters(), options).value(), model);
    EXPECT_TRUE(shard.expired());
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(EngineModels, TheMemoryOfAModelGoesWithItsLastHandle) {
  run_ranks(1, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave", UpdateMode::kReplicated, OptimizerKind::kAdam)).value();
    MemoryHandles handles = engine.handles(model);
    ASSERT_EQ(handles.state.size(), 2u);
    const std::vector<std::weak_ptr<const void>> all = {handles.parameters[0], handles.gradients[0], handles.state[0], handles.state[1]};
    const std::span<float> parameter = floats(engine.parameter(model, 0));
    ASSERT_TRUE(engine.remove_model(model, false).ok());
    handles.gradients.clear();
    handles.state.clear();
    EXPECT_EQ(std::ranges::count_if(all, [](const auto& part) { return part.expired(); }), 3);
    parameter[0] = 7;  // what is still held may be used
    handles.parameters.clear();
    EXPECT_TRUE(all[0].expired());
  });
}

TEST(EngineModels, ModelMemoryOutlivesTheEngine) {
  MemoryHandles handles;
  std::span<float> parameter;
  run_ranks(1, kPatient, [&](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    handles = engine.handles(model);
    parameter = floats(engine.parameter(model, 0));
    parameter[0] = 7;
  });
  EXPECT_EQ(parameter[0], 7);
}

}  // namespace
}  // namespace maypole::pipeline
