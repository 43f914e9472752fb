// SPDX-License-Identifier: Apache-2.0
// Replicated updates that broke off: what a rank has whole afterwards is all of a step, and the same bits as if no further one had begun.
#include "maypole/pipeline/engine_testing.h"

#include <gmock/gmock.h>

#include <atomic>
#include <latch>

namespace maypole::pipeline {
namespace {

using overlap::UpdateMode;
using ::testing::HasSubstr;

ModelOptions replicated_adam(const char* schedule, bool keep_previous) {
  ModelOptions options = options_for(schedule, UpdateMode::kReplicated, OptimizerKind::kAdam);
  options.keep_previous = keep_previous;
  return options;
}

/// A parameter and both of its moments.
std::vector<float> one_of(Engine& engine, ModelId model, std::size_t parameter) {
  std::vector<float> values;
  for (const std::span<std::byte> bytes :
       {engine.parameter(model, parameter), engine.state(model, parameter, 0), engine.state(model, parameter, 1)}) {
    const std::span<float> part = floats(bytes);
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

/// The same of both parameters.
std::vector<float> everything(Engine& engine, ModelId model) {
  std::vector<float> values = one_of(engine, model, 0);
  const std::vector<float> second = one_of(engine, model, 1);
  values.insert(values.end(), second.begin(), second.end());
  return values;
}

/// In the second step rank 1 keeps its part of the last group's averages to itself.
class LastGroupMissing {
 public:
  std::vector<std::unique_ptr<comm::Communicator>> ring() {
    return make_fake_ring(2, base::test_seed(), {},
                          [this](int rank, std::uint64_t tag) { return rank == 0 || !second_step_ || (tag & 0x7fffffU) != last_group_; });
  }
  void begin(std::size_t num_groups) {
    last_group_ = num_groups - 1;
    second_step_ = true;
  }

 private:
  std::atomic<bool> second_step_ = false;
  std::atomic<std::size_t> last_group_ = 0;
};

TEST(EngineUndo, AStepOfWhichOneAverageIsLostIsTakenBackWithMomentsAndCounts) {
  for (const char* const schedule : {"dear", "weave"}) {
    LastGroupMissing missing;
    std::latch first_done(2);
    std::latch updated(2);
    run_ranks(
        2, kPatient,
        [&](Engine& engine, int rank) {
          const ModelId model = engine.add_model(two_parameters(), replicated_adam(schedule, true)).value();
          ASSERT_TRUE(go_backward(engine, model, 1).ok());
          ASSERT_TRUE(engine.step(model, kStep).ok());
          ASSERT_TRUE(engine.flush(model).ok());
          const std::vector<float> first = everything(engine, model);
          const std::vector<float> before = one_of(engine, model, 0);
          missing.begin(engine.plan(model).groups.size());
          first_done.arrive_and_wait();
          ASSERT_TRUE(go_backward(engine, model, 2).ok());
          ASSERT_TRUE(engine.step(model, kStep).ok());
          if (rank == 0) {  // the groups of the first parameter have come, and are updated; those of the second may be on their way
            ASSERT_TRUE(engine.before_use(model, 0).ok());
            EXPECT_NE(one_of(engine, model, 0), before);
          }
          updated.arrive_and_wait();
          if (rank == 1) {
            engine.communicator().abort(absl::UnavailableError("rank 1 is lost"));
            return;
          }
          EXPECT_FALSE(engine.flush(model).ok());
          EXPECT_EQ(engine.take_back(model).value(), 1u);
          EXPECT_EQ(everything(engine, model), first);
          EXPECT_EQ(engine.update_count(model, 0), 1);
          EXPECT_EQ(engine.update_count(model, 1), 1);
          EXPECT_EQ(engine.take_back(model).value(), 1u) << "there is nothing more to take back";
        },
        missing.ring());
  }
}

TEST(EngineUndo, AStepThatIsWholeStays) {
  std::latch done(2);
  run_ranks(2, kPatient, [&](Engine& engine, int rank) {
    const ModelId model = engine.add_model(two_parameters(), replicated_adam("weave", true)).value();
    ASSERT_TRUE(go_backward(engine, model, 1).ok());
    ASSERT_TRUE(engine.step(model, kStep).ok());
    ASSERT_TRUE(engine.flush(model).ok());
    const std::vector<float> first = everything(engine, model);
    done.arrive_and_wait();
    if (rank == 1) {
      engine.communicator().abort(absl::UnavailableError("rank 1 is lost"));
      return;
    }
    go_backward(engine, model, 2).IgnoreError();  // the next one breaks off before its step()
    EXPECT_EQ(engine.take_back(model).value(), 1u);
    EXPECT_EQ(everything(engine, model), first);
  });
}

TEST(EngineUndo, WithNothingKeptABrokenUpdateIsAnError) {
  LastGroupMissing missing;
  std::latch updated(2);
  run_ranks(
      2, kPatient,
      [&](Engine& engine, int rank) {
        const ModelId model = engine.add_model(two_parameters(), replicated_adam("weave", false)).value();
        missing.begin(engine.plan(model).groups.size());
        ASSERT_TRUE(go_backward(engine, model, 1).ok());
        ASSERT_TRUE(engine.step(model, kStep).ok());
        if (rank == 0) {
          ASSERT_TRUE(engine.before_use(model, 0).ok());
        }
        updated.arrive_and_wait();
        if (rank == 1) {
          engine.communicator().abort(absl::UnavailableError("rank 1 is lost"));
          return;
        }
        EXPECT_FALSE(engine.flush(model).ok());
        EXPECT_THAT(text(engine.take_back(model).status()), HasSubstr("nothing was kept of the one before"));
      },
      missing.ring());
}

}  // namespace
}  // namespace maypole::pipeline
