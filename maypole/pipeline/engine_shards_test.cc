// SPDX-License-Identifier: Apache-2.0
// Shards as they are and as they were, and copies of them at peers.
#include "maypole/pipeline/engine_testing.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <latch>
#include <memory>

namespace maypole::pipeline {
namespace {

using Bytes = std::vector<std::byte>;
using overlap::UpdateMode;
using ::testing::HasSubstr;

ModelOptions sharded_adam(bool keep_previous) {
  ModelOptions options = options_for("weave", UpdateMode::kSharded, OptimizerKind::kAdam);
  options.keep_previous = keep_previous;
  return options;
}

/// A shard of two_parameters() after its update counts: parameters and both moments of each, as floats.
std::vector<float> values_of(const Bytes& shard) {
  std::vector<float> values((shard.size() - 2 * sizeof(std::int64_t)) / sizeof(float));
  std::memcpy(values.data(), shard.data() + 2 * sizeof(std::int64_t), values.size() * sizeof(float));
  return values;
}

std::int64_t first_count_of(const Bytes& shard) {
  std::int64_t count = 0;
  std::memcpy(&count, shard.data(), sizeof count);
  return count;
}

Bytes await_shard(Engine& engine, ModelId model, std::uint64_t steps) {
  absl::StatusOr<Bytes> shard = engine.read_shard(model, steps);
  while (!shard.ok()) {
    std::this_thread::yield();
    shard = engine.read_shard(model, steps);
  }
  return *std::move(shard);
}

TEST(EngineShards, ShardsOfAllRanksMakeTheWhole) {
  run_ranks(3, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), sharded_adam(false)).value();
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      std::vector<int> owners(two_parameters()[i].count);
      for (int rank = 0; rank < 3; ++rank) {
        for (const model::Interval& part : engine.shard_elements(model, i, rank)) {
          std::for_each(owners.begin() + static_cast<std::ptrdiff_t>(part.begin), owners.begin() + static_cast<std::ptrdiff_t>(part.end),
                        [](int& owner) { ++owner; });
        }
      }
      EXPECT_THAT(owners, ::testing::Each(1));
    }
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(EngineShards, AStepInMotionCanBeReadBeforeAndAfterItsUpdateEvenWhenThePeerIsLost) {
  for (const bool lost : {false, true}) {
    std::latch read(2);
    run_ranks(2, kPatient, [&](Engine& engine, int rank) {
      const ModelId model = engine.add_model(two_parameters(), sharded_adam(true)).value();
      ASSERT_TRUE(go_backward(engine, model, 1).ok());
      ASSERT_TRUE(engine.step(model, kStep).ok());
      ASSERT_TRUE(engine.flush(model).ok());
      const Bytes first = engine.read_shard(model, 1).value();
      EXPECT_EQ(first_count_of(first), 1);
      ASSERT_TRUE(go_backward(engine, model, 2).ok());
      if (rank == 1) {  // its shard does not come: rank 0 has its own, and the step stays in motion
        read.arrive_and_wait();
        if (lost) {
          engine.communicator().abort(absl::UnavailableError("rank 1 is lost"));
          return;
        }
        ASSERT_TRUE(engine.step(model, kStep).ok());
      } else {
        ASSERT_TRUE(engine.step(model, kStep).ok());
        const Bytes second = await_shard(engine, model, 2);
        EXPECT_EQ(first_count_of(second), 2);
        EXPECT_NE(values_of(second), values_of(first));
        EXPECT_EQ(engine.read_shard(model, 1).value(), first);
        EXPECT_EQ(engine.read_shard(model, 3).status().code(), absl::StatusCode::kUnavailable);
        read.arrive_and_wait();
        EXPECT_EQ(engine.flush(model).ok(), !lost);
        EXPECT_EQ(engine.read_shard(model, 2).value(), second);
        EXPECT_EQ(engine.read_shard(model, 1).ok(), lost);  // everybody has the second when it is current here
      }
      EXPECT_EQ(engine.finalize().ok(), !lost);
    });
  }
}

TEST(EngineShards, WithoutTheLastValuesOnlyTheStepInMotionIsThere) {
  std::latch read(2);
  run_ranks(2, kPatient, [&](Engine& engine, int rank) {
    const ModelId model = engine.add_model(two_parameters(), sharded_adam(false)).value();
    ASSERT_TRUE(go_backward(engine, model, 1).ok());
    if (rank == 1) {
      read.arrive_and_wait();
    }
    ASSERT_TRUE(engine.step(model, kStep).ok());
    if (rank == 0) {
      (void)await_shard(engine, model, 1);
      EXPECT_THAT(text(engine.read_shard(model, 0).status()), HasSubstr("does not have its shard as it was after step 0"));
      read.arrive_and_wait();
    }
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(EngineShards, AnOfferIsFetchedInPiecesAndWaitedFor) {
  const auto offered = std::make_shared<Bytes>(2 * Engine::kOfferPiece + 5);
  std::ranges::generate(*offered, [k = 0]() mutable { return static_cast<std::byte>(k++ % 251); });
  run_ranks(3, kPatient, [&](Engine& engine, int rank) {
    if (rank == 2) {
      engine.offer(7, offered);
    } else {
      Bytes fetched;
      for (std::uint32_t piece = 0; piece < 3; ++piece) {
        const Bytes part = engine.fetch(2, 7, piece).value();
        fetched.insert(fetched.end(), part.begin(), part.end());
      }
      EXPECT_EQ(fetched, *offered);
    }
    EXPECT_TRUE(engine.finalize().ok());
  });
}

}  // namespace
}  // namespace maypole::pipeline
