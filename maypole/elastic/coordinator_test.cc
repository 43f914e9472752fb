// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/coordinator.h"

#include "maypole/base/status.h"
#include "maypole/elastic/coordinator_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::elastic {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = WorkerReport::Kind;

TEST(CoordinatorTest, TrainingBeginsWhenAllFoundersAreReady) {
  ScriptedRun run(options(1, 3, 8));
  run.ready(2);
  run.ready(0);
  EXPECT_EQ(run.epoch(), 0U);
  run.ready(1);
  EXPECT_EQ(run.epoch(), 1U);
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 2));
}

TEST(CoordinatorTest, ARunGrowsWhenItsNewcomersAreReadyAndItsMembersHaveStopped) {
  ScriptedRun run(options(1, 2, 8));
  run.begin(2);
  run.resize(4);
  EXPECT_THAT(run.asked_to_stop, IsEmpty()) << "nobody waits for a newcomer that is still starting";
  run.ready(3);
  EXPECT_THAT(run.asked_to_stop, IsEmpty());
  run.ready(2);
  EXPECT_THAT(run.asked_to_stop, ElementsAre(0, 1));
  EXPECT_EQ(run.epoch(), 1U);
  run.stop();
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(run.answers, IsEmpty());
  run.enter();
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus()));
  EXPECT_EQ(run.coordinator.num_failures(), 0);
}

TEST(CoordinatorTest, ARunShrinksFromItsEndAndLeaversAreNoFailures) {
  ScriptedRun run(options(1, 4, 8));
  run.begin(4);
  run.resize(2);
  run.stop();
  EXPECT_THAT(run.members(), ElementsAre(0, 1));
  EXPECT_THAT(run.told_to_leave, ElementsAre(2, 3));
  run.end(3, true);
  run.end(2, true);
  run.enter();
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus()));
  EXPECT_EQ(run.coordinator.num_failures(), 0);
  EXPECT_EQ(run.failure, std::nullopt);
}

TEST(CoordinatorTest, ALostWorkerIsReplacedAndTheOthersGoOnMeanwhile) {
  ScriptedRun run(options(1, 3, 8, 1));
  run.begin(3);
  run.end(1);
  EXPECT_EQ(run.epoch(), 1U) << "the others have not stopped yet";
  run.stop("rank 1 is lost");
  EXPECT_EQ(run.epoch(), 2U);
  EXPECT_THAT(run.members(), ElementsAre(0, 2));
  run.enter();
  run.ready(3);
  run.stop();
  EXPECT_THAT(run.members(), ElementsAre(0, 2, 3));
}

TEST(CoordinatorTest, WithoutRetriesARunGoesOnSmaller) {
  ScriptedRun run(options(2, 3, 8));
  run.begin(3);
  run.end(0);
  run.stop("rank 0 is lost");
  EXPECT_THAT(run.members(), ElementsAre(1, 2));
  EXPECT_EQ(run.failure, std::nullopt);
  run.enter();
  run.end(1);
  run.stop("rank 0 is lost");
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(*run.failure, HasSubstr("1 worker is left, at least 2 are needed"));
}

TEST(CoordinatorTest, BelowTheMinimumARunWaitsVisiblyForAReplacement) {
  ScriptedRun run(options(2, 2, 8, 1));
  run.begin(2);
  run.end(1);
  run.stop("rank 1 is lost");
  EXPECT_EQ(run.epoch(), 1U);
  EXPECT_THAT(run.last_said(), HasSubstr("training waits: 1 of at least 2 workers live"));
  run.ready(2);
  EXPECT_THAT(run.members(), ElementsAre(0, 2));
}

TEST(CoordinatorTest, AResizeToTheWorkersThatAreLeftIsAnsweredAtOnce) {
  ScriptedRun run(options(1, 3, 8, 1));
  run.begin(3);
  run.end(1);
  run.stop("rank 1 is lost");
  run.enter();
  run.resize(2);  // while the replacement starts: no epoch follows
  EXPECT_THAT(run.killed, ElementsAre(3));
  ASSERT_EQ(run.answers.size(), 1U);
  EXPECT_TRUE(run.answers[0].ok()) << run.answers[0];
  run.resize(3);
  EXPECT_EQ(run.answers.size(), 1U) << "it is under way";
}

TEST(CoordinatorTest, AFrozenWorkerIsKilledAndLost) {
  ScriptedRun run(options(1, 3, 8));
  run.begin(3);
  run.pass(seconds(1), {1});
  EXPECT_THAT(run.killed, IsEmpty());
  run.pass(seconds(2), {1});
  EXPECT_THAT(run.killed, ElementsAre(1));
  run.ended.insert(1);
  run.stop("rank 1 is lost");
  EXPECT_THAT(run.members(), ElementsAre(0, 2));
}

TEST(CoordinatorTest, WorkersAreNotBlamedForTimeInWhichTheCoordinatorStoodStill) {
  ScriptedRun run(options(1, 3, 8));
  run.begin(3);
  run.pass(seconds(1));
  run.stand_still(seconds(60));
  EXPECT_THAT(run.killed, IsEmpty());
  run.pass(seconds(3));
  EXPECT_THAT(run.killed, IsEmpty());
}

TEST(CoordinatorTest, ACutLinkFormsTheSameMembersAnew) {
  ScriptedRun run(options(1, 3, 8));
  run.begin(3);
  run.stop("rank 1 closed the connection");
  EXPECT_EQ(run.epoch(), 2U);
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 2));
}

TEST(CoordinatorTest, ARingThatNeverHoldsEndsTheRun) {
  ScriptedRun run(options(1, 2, 8));
  run.begin(2);
  for (int i = 0; i < 20 && !run.failure; ++i) {
    run.report(0, Kind::kStopped, "no way");
    run.report(1, Kind::kStopped, "no way");
  }
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(*run.failure, HasSubstr("the ring broke 6 times in a row before a step was done; the last time: no way"));
}

TEST(CoordinatorTest, AMemberLostWhileAChangeIsPreparedIsLeftOutOfIt) {
  ScriptedRun run(options(1, 3, 8));
  run.begin(3);
  run.resize(4);
  run.ready(3);
  run.report(0, Kind::kStopped);
  run.end(2);
  run.report(1, Kind::kStopped, "rank 2 is lost");
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 3));
  EXPECT_EQ(run.epoch(), 2U);
  ASSERT_EQ(run.answers.size(), 1U);
  EXPECT_THAT(base::message(run.answers[0]), HasSubstr("worker 2 was killed by SIGKILL; 3 workers of the run go on"));
}

TEST(CoordinatorTest, AMemberLostWhileARunShrinksIsNotReplaced) {
  ScriptedRun run(options(1, 3, 8, 5));
  run.begin(3);
  run.resize(2);
  run.end(0);
  run.stop("rank 0 is lost");
  EXPECT_THAT(run.members(), ElementsAre(1, 2));
  EXPECT_THAT(run.started, ElementsAre(0, 1, 2));
}

TEST(CoordinatorTest, ANewcomerLostWhileAChangeIsPreparedIsLeftOutOfIt) {
  ScriptedRun run(options(1, 2, 8));
  run.begin(2);
  run.resize(4);
  run.ready(2);
  run.ready(3);
  run.end(3);
  run.stop();
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 2));
  EXPECT_EQ(run.answers.at(0).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(base::message(run.answers.at(0)), HasSubstr("worker 3 was killed by SIGKILL before it joined; 3 workers of the run go on"));
}

TEST(CoordinatorTest, ANewcomerWithAnotherModelIsRefusedAndTheDifferenceNamed) {
  ScriptedRun run(options(1, 2, 8));
  run.begin(2);
  run.resize(3);
  run.ready(2, "model of another size");
  EXPECT_THAT(run.refused.at(2), HasSubstr("it has 'model of another size' where the run has 'model'"));
  EXPECT_EQ(run.answers.at(0).code(), absl::StatusCode::kAborted);
  run.end(2);
  EXPECT_EQ(run.failure, std::nullopt);
  EXPECT_EQ(run.coordinator.num_failures(), 0);
  run.resize(3);
  EXPECT_TRUE(run.started.contains(3));
}

TEST(CoordinatorTest, ASlowNewcomerHoldsTheOthersUpForItsWindowOnly) {
  ScriptedRun run(options(1, 2, 8));
  run.begin(2);
  run.resize(4);
  run.ready(2);
  run.pass(seconds(9));
  EXPECT_THAT(run.asked_to_stop, IsEmpty());
  run.pass(seconds(2));
  EXPECT_THAT(run.asked_to_stop, ElementsAre(0, 1));
  run.stop();
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 2));
  run.enter();
  EXPECT_THAT(run.answers, IsEmpty());
  run.ready(3);
  run.stop();
  run.enter();
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus()));
}

TEST(CoordinatorTest, WrongResizesAreRefusedInOneLine) {
  ScriptedRun run(options(2, 4, 8));
  const auto refuse = [&](int min, int max, absl::StatusCode code, const char* text) {
    const std::size_t before = run.answers.size();
    run.resize(min, max);
    ASSERT_EQ(run.answers.size(), before + 1);
    EXPECT_EQ(run.answers.back().code(), code);
    EXPECT_THAT(base::message(run.answers.back()), HasSubstr(text));
  };
  refuse(3, 3, absl::StatusCode::kUnavailable, "the script is not in the loop");
  run.begin(4);
  refuse(1, 1, absl::StatusCode::kInvalidArgument, "1 workers is outside of --workers 2:8");
  refuse(4, 9, absl::StatusCode::kInvalidArgument, "4:9 is outside of --workers 2:8");
  refuse(6, 4, absl::StatusCode::kInvalidArgument, "6:4 is no range");
  refuse(4, 4, absl::StatusCode::kInvalidArgument, "the run has 4 workers already");
  run.resize(6);
  refuse(3, 3, absl::StatusCode::kUnavailable, "a resize from 4 to 6 workers is under way");
}

TEST(CoordinatorTest, ARangeMovesTheNumberOnlyAsFarAsItMust) {
  ScriptedRun run(options(1, 4, 8));
  run.begin(4);
  run.resize(2, 6);
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus()));
  run.resize(1, 3);
  run.stop();
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 2));
}

TEST(CoordinatorTest, WithoutTheLoopAWorkerLostEndsTheRun) {
  ScriptedRun run(options(1, 2, 8, 5));
  run.ready(0);
  run.ready(1);
  run.enter();
  run.end(1);
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(*run.failure, HasSubstr("worker 1 was killed by SIGKILL"));
}

TEST(CoordinatorTest, WorkersThatTrainNothingEndAsTheyLike) {
  ScriptedRun run(options(1, 2, 8));
  run.pass(std::chrono::minutes(10));
  run.end(0, true);
  run.end(1, true);
  EXPECT_EQ(run.failure, std::nullopt);
  EXPECT_THAT(run.killed, IsEmpty());
}

TEST(CoordinatorTest, AFounderThatEndsBeforeItsPeersMeetItFailsTheRun) {
  ScriptedRun run(options(1, 2, 8));
  run.ready(0);
  run.end(1, true);
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(*run.failure, HasSubstr("a worker ended before training began"));
}

TEST(CoordinatorTest, TheLoopsEndTogether) {
  ScriptedRun run(options(1, 2, 8));
  run.begin(2);
  run.report(0, Kind::kFinished);
  EXPECT_THAT(run.told_to_end, IsEmpty());
  run.report(1, Kind::kFinished);
  EXPECT_THAT(run.told_to_end, ElementsAre(0, 1));
  run.resize(3);
  EXPECT_THAT(base::message(run.answers.at(0)), HasSubstr("training is over"));
  run.end(0, true);
  run.end(1, true);
  EXPECT_EQ(run.failure, std::nullopt);
}

TEST(CoordinatorTest, WhoHasFinishedStillHelpsThoseWhoseLastStepBroke) {
  ScriptedRun run(options(1, 3, 8));
  run.begin(3);
  run.report(0, Kind::kFinished);
  run.end(2);
  run.report(1, Kind::kStopped, "rank 2 is lost");
  EXPECT_THAT(run.told_to_end, IsEmpty());
  EXPECT_THAT(run.members(), ElementsAre(0, 1));
  EXPECT_EQ(run.epoch(), 2U);
}

TEST(CoordinatorTest, AFailureAfterTheLoopEndsTheRun) {
  ScriptedRun run(options(1, 2, 8, 5));
  run.begin(2);
  run.report(0, Kind::kFinished);
  run.report(1, Kind::kFinished);
  run.end(1);
  EXPECT_TRUE(run.failure);
}

TEST(CoordinatorTest, AWorkerThatLeavesTheLoopWhileOthersTrainEndsTheRun) {
  ScriptedRun run(options(1, 2, 8, 5));
  run.begin(2);
  run.end(1, true);
  EXPECT_EQ(run.failure, std::nullopt) << "all may leave after the same step";
  run.report(0, Kind::kStopped, "rank 1 is lost");
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(*run.failure, HasSubstr("worker 1 left the loop and ended while others trained"));
}

TEST(CoordinatorTest, WhoIsDoneEndsEvenIfAnotherHasLeftTheLoopAfterTheLastStep) {
  for (const bool first : {true, false}) {
    ScriptedRun run(options(1, 2, 8, 5));
    run.begin(2);
    if (first) {
      run.end(1, true);
    }
    run.report(0, Kind::kFinished);
    if (!first) {
      run.end(1, true);
    }
    EXPECT_THAT(run.told_to_end, ElementsAre(0));
    EXPECT_EQ(run.failure, std::nullopt);
  }
}

TEST(CoordinatorTest, NewcomersAreSentAwayWhenTrainingEndsFirst) {
  ScriptedRun run(options(1, 2, 8));
  run.begin(2);
  run.resize(3);
  run.report(0, Kind::kFinished);
  run.report(1, Kind::kFinished);
  EXPECT_THAT(run.killed, ElementsAre(2));
  EXPECT_THAT(base::message(run.answers.at(0)), HasSubstr("training ended first"));
  EXPECT_EQ(run.failure, std::nullopt);
}

TEST(CoordinatorTest, WhenAllWorkersAreLostTheRunFails) {
  ScriptedRun run(options(1, 2, 8, 3));
  run.begin(2);
  run.end(0);
  run.end(1);
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(*run.failure, HasSubstr("all workers are lost"));
}

TEST(CoordinatorTest, WithCheckpointsReplacementsGoOnWhenAllWorkersAreLost) {
  CoordinatorOptions with_checkpoints = options(1, 2, 8, 3);
  with_checkpoints.checkpoints = true;
  ScriptedRun run(with_checkpoints);
  run.begin(2);
  run.end(0);
  run.end(1);
  EXPECT_EQ(run.failure, std::nullopt);
  run.ready(3);
  EXPECT_EQ(run.epoch(), 1U) << "the other replacement is still starting";
  run.ready(2);
  EXPECT_THAT(run.members(), ElementsAre(2, 3));
  EXPECT_THAT(run.last_said(), HasSubstr("all workers are lost; new ones go on from the last checkpoint"));
  run.enter();
  EXPECT_EQ(run.coordinator.num_failures(), 2);
}

TEST(CoordinatorTest, WithCheckpointsARunWhoseWorkersAreAllLostEndsWhenNoRetriesAreLeft) {
  CoordinatorOptions with_checkpoints = options(1, 2, 8, 1);
  with_checkpoints.checkpoints = true;
  ScriptedRun run(with_checkpoints);
  run.begin(2);
  run.end(0);
  run.end(1);
  run.ready(2);
  EXPECT_THAT(run.members(), ElementsAre(2)) << "one retry was left for the two";
  run.enter();
  run.end(2);
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(*run.failure, HasSubstr("all workers are lost, and no retries are left; the last: worker 2 was killed by SIGKILL"));
}

TEST(CoordinatorTest, ARunBegunAgainFromCheckpointsWaitsForItsMinimum) {
  CoordinatorOptions with_checkpoints = options(2, 2, 8, 2);
  with_checkpoints.checkpoints = true;
  ScriptedRun run(with_checkpoints);
  run.begin(2);
  run.end(0);
  run.end(1);
  run.ready(2);
  run.pass(seconds(11));
  EXPECT_EQ(run.epoch(), 1U);
  EXPECT_THAT(run.last_said(), HasSubstr("training waits: 1 of at least 2 workers live"));
  run.ready(3);
  EXPECT_THAT(run.members(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace maypole::elastic
