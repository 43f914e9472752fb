// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/supervisor.h"

#include "maypole/base/status.h"
#include "maypole/daemon/supervisor_testing.h"
#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace maypole::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class SupervisorTest : public ::testing::TestWithParam<const char*> {
 protected:
  SupervisorHand hand_{GetParam()};
};

TEST_P(SupervisorTest, AJobThatFitsStartsWithinASecondAndEndsAsItsWorkersDo) {
  hand_.pass(100.1);
  const std::int64_t job = hand_.submit(R"("workers": 2)");
  hand_.pass(1);
  ASSERT_EQ(hand_.state(job), JobState::kStarting);
  const auto orders = hand_.all<EpochOrder>();
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_EQ(orders[0].id, (EpochId{job, 1}));
  EXPECT_THAT(orders[0].workers, SizeIs(2));
  hand_.started(job, 0);
  EXPECT_EQ(hand_.state(job), JobState::kStarting) << "one of two";
  hand_.started(job, 1);
  EXPECT_EQ(hand_.state(job), JobState::kRunning);
  hand_.pass(500);
  hand_.ended(job, 0);
  EXPECT_EQ(hand_.state(job), JobState::kRunning);
  hand_.ended(job, 1);
  EXPECT_EQ(hand_.state(job), JobState::kFinished);
  EXPECT_EQ(hand_.row(job).exit_code, 0);
  EXPECT_THAT(hand_.all<StopEpoch>(), SizeIs(0));
}

TEST_P(SupervisorTest, AJobThatWaitsForADrainedServerHoldsNobodyUp) {
  hand_.supervisor.close(model::ServerId(0), "drained by ann");
  const std::int64_t large = hand_.submit(R"("workers": 5)");
  hand_.pass(3600);
  EXPECT_EQ(hand_.state(large), JobState::kQueued);
  const std::int64_t small = hand_.submit(R"("workers": 4)");
  hand_.pass(1);
  EXPECT_EQ(hand_.state(small), JobState::kStarting);
  hand_.all_ended(small);
  hand_.supervisor.open(model::ServerId(0));
  hand_.pass(1);
  EXPECT_EQ(hand_.state(large), JobState::kStarting);
}

TEST_P(SupervisorTest, AJobTooLargeForTheClusterIsRefusedOrWaitsForALargerOne) {
  const auto refused = hand_.supervisor.admit("ann", R"({"version": 1, "command": ["x"], "workers": 9})", hand_.now_s);
  EXPECT_THAT(refused, model::FailsWith("needs at least 9 workers, the empty cluster holds 8"));
  const std::int64_t job = hand_.submit(R"("workers": 9, "allow_wait": true)");
  const std::int64_t strange = hand_.submit(R"("per_worker": {"tpu": 1}, "allow_wait": true)");
  hand_.pass(3600);
  EXPECT_EQ(hand_.state(job), JobState::kQueued);
  EXPECT_EQ(hand_.supervisor.find(job)->reason(), "waits for a larger cluster: it needs at least 9 workers, the empty cluster holds 8");
  EXPECT_THAT(hand_.supervisor.find(strange)->reason(), HasSubstr("no server has any 'tpu'"));
  EXPECT_FALSE(hand_.supervisor.admit("ann", R"({"version": 1, "command": ["x"], "weight": -1, "allow_wait": true})", hand_.now_s).ok());

  SupervisorHand larger(GetParam(), small_cluster(3));
  ASSERT_TRUE(larger.supervisor.restore({hand_.row(job), hand_.row(strange)}).ok());
  larger.pass(1);
  EXPECT_EQ(larger.state(job), JobState::kStarting);
  larger.supervisor.cancel(strange, "cancelled by ann", larger.now_s);
  EXPECT_EQ(larger.state(strange), JobState::kCancelled);
}

TEST_P(SupervisorTest, AWaitingJobStaysWhenTheClusterShrinksAndStartsWhenItsServersReturn) {
  const std::int64_t job = hand_.submit(R"("workers": 8)");
  SupervisorHand smaller(GetParam(), small_cluster(1));
  ASSERT_TRUE(smaller.supervisor.restore({hand_.row(job)}).ok());
  smaller.pass(60);
  EXPECT_EQ(smaller.state(job), JobState::kQueued);
  EXPECT_THAT(smaller.supervisor.find(job)->reason(), HasSubstr("the empty cluster holds 4"));
  SupervisorHand again(GetParam());
  ASSERT_TRUE(again.supervisor.restore({smaller.row(job)}).ok());
  again.pass(1);
  EXPECT_EQ(again.state(job), JobState::kStarting);
}

TEST_P(SupervisorTest, CapacityIsGivenAgainOnlyWhenTheLastProcessIsGone) {
  const std::int64_t first = hand_.submit(R"("workers": 8)");
  hand_.pass(1);
  hand_.all_started(first);
  const std::int64_t second = hand_.submit(R"("workers": 1)");
  hand_.pass(90);
  EXPECT_EQ(hand_.state(second), JobState::kQueued);
  hand_.supervisor.cancel(first, "cancelled by ann", hand_.now_s);
  hand_.pass(90);
  EXPECT_EQ(hand_.state(first), JobState::kRunning);
  for (int rank = 0; rank < 7; ++rank) {
    hand_.ended(first, rank, 0, SIGTERM);
  }
  hand_.pass(90);
  EXPECT_EQ(hand_.state(second), JobState::kQueued);
  hand_.ended(first, 7, 0, SIGTERM);
  EXPECT_EQ(hand_.state(first), JobState::kCancelled);
  EXPECT_EQ(hand_.row(first).exit_code, 130);
  hand_.pass(1);
  EXPECT_EQ(hand_.state(second), JobState::kStarting);
}

TEST_P(SupervisorTest, TwoJobsOfOneMomentNeverGetTheSameCores) {
  std::vector<std::int64_t> jobs;
  for (int i = 0; i < 20; ++i) {
    jobs.push_back(hand_.submit(R"("workers": 3)"));
  }
  hand_.pass(1);
  int running = 0;
  for (const std::int64_t job : jobs) {
    running += hand_.state(job) == JobState::kStarting ? 1 : 0;
  }
  EXPECT_EQ(running, 2) << "8 cores, 3 each";
  EXPECT_EQ(hand_.supervisor.refusal(), "");
}

TEST_P(SupervisorTest, AFailedRankEndsTheOthersAfterTheirLastWordsAndGivesTheJobItsCode) {
  const std::int64_t job = hand_.submit(R"("workers": 2)");
  hand_.pass(1);
  hand_.all_started(job);
  hand_.ended(job, 1, 3);
  hand_.pass(2);
  EXPECT_THAT(hand_.all<StopEpoch>(), SizeIs(0));
  hand_.pass(2);
  EXPECT_THAT(hand_.all<StopEpoch>(), SizeIs(1));
  hand_.ended(job, 0, 0, SIGTERM);
  EXPECT_EQ(hand_.state(job), JobState::kFailed);
  EXPECT_EQ(hand_.row(job).exit_code, 3);
  EXPECT_THAT(hand_.row(job).reason, HasSubstr("rank 1"));
}

TEST_P(SupervisorTest, AKilledRankIsTheCauseNotThoseThatMissIt) {
  const std::int64_t job = hand_.submit(R"("workers": 2)");
  hand_.pass(1);
  hand_.all_started(job);
  hand_.ended(job, 0, 1);
  hand_.ended(job, 1, 0, SIGKILL);
  EXPECT_EQ(hand_.row(job).exit_code, 128 + SIGKILL);
  EXPECT_THAT(hand_.row(job).reason, HasSubstr("rank 1 was killed"));
}

TEST_P(SupervisorTest, RetriesStartANewEpochAndAreCounted) {
  const std::int64_t job = hand_.submit(R"("retries": 1)");
  hand_.pass(1);
  hand_.all_started(job);
  hand_.all_ended(job, 5);
  EXPECT_EQ(hand_.state(job), JobState::kQueued);
  hand_.pass(1);
  EXPECT_EQ(hand_.state(job), JobState::kStarting);
  EXPECT_EQ(hand_.row(job).epoch, 2);
  hand_.all_started(job);
  hand_.all_ended(job, 5);
  EXPECT_EQ(hand_.state(job), JobState::kFailed);
  EXPECT_EQ(hand_.row(job).failures, 1);
}

TEST_P(SupervisorTest, EventsOfAnEarlierEpochChangeNothing) {
  const std::int64_t job = hand_.submit(R"("retries": 1)");
  hand_.pass(1);
  hand_.all_started(job);
  hand_.all_ended(job, 5);
  hand_.pass(1);
  hand_.supervisor.on_worker({.kind = WorkerEventKind::kEnded, .id = {job, 1}, .rank = 0, .exit = {}}, hand_.now_s);
  EXPECT_EQ(hand_.state(job), JobState::kStarting);
}

TEST_P(SupervisorTest, ATimeLimitEndsAJob) {
  const std::int64_t job = hand_.submit(R"("time_limit": "5s")");
  hand_.pass(1);
  hand_.all_started(job);
  hand_.pass(4.9);
  EXPECT_THAT(hand_.all<StopEpoch>(), SizeIs(0));
  hand_.pass(0.3);
  ASSERT_THAT(hand_.all<StopEpoch>(), SizeIs(1));
  hand_.ended(job, 0, 0, SIGTERM);
  EXPECT_EQ(hand_.state(job), JobState::kFailed);
  EXPECT_THAT(hand_.row(job).reason, HasSubstr("time limit of 5 s"));
}

TEST_P(SupervisorTest, WhatCanNeverFitIsRefusedWithBothNumbers) {
  const auto row = hand_.supervisor.admit("ann", R"({"version": 1, "command": ["x"], "workers": 9})", hand_.now_s);
  EXPECT_THAT(row, model::FailsWith("9"));
  EXPECT_THAT(row, model::FailsWith("8"));
  EXPECT_THAT(hand_.supervisor.admit("ann", R"({"version": 1, "command": ["x"], "per_worker": {"tpu": 1}})", hand_.now_s),
              model::FailsWith("tpu"));
  EXPECT_THAT(hand_.supervisor.admit("ann", R"({"version": 1, "command": ["x"], "colour": 1})", hand_.now_s), model::FailsWith("colour"));
}

TEST_P(SupervisorTest, AJobWhoseShapeDoesNotFitDoesNotBlockALaterOne) {
  const std::int64_t blocker = hand_.submit(R"("workers": 2, "per_worker": {"cpu": 3})");
  hand_.pass(1);
  hand_.all_started(blocker);
  const std::int64_t wide = hand_.submit(R"("workers": 1, "per_worker": {"cpu": 2})");  // one core is free on each server
  const std::int64_t narrow = hand_.submit(R"("workers": 2, "per_worker": {"cpu": 1})");
  hand_.pass(61);
  EXPECT_EQ(hand_.state(wide), JobState::kQueued);
  EXPECT_EQ(hand_.state(narrow), JobState::kStarting);
}

TEST_P(SupervisorTest, ABandwidthThatNoLinkHasIsRefusedOrWaitsForALargerCluster) {
  const auto asks = [&](const std::string& more) {
    return hand_.supervisor.admit("ann", R"({"version": 1, "command": ["x"], "edge_bandwidth": "2GB/s", )" + more + "}", hand_.now_s);
  };
  EXPECT_THAT(asks(R"("workers": 5)"), model::FailsWith("it needs at least 5 workers, and servers joined by links of"));
  EXPECT_TRUE(asks(R"("workers": 4)").ok()) << "one server holds them, and there their ring uses no link";
  const std::int64_t job = hand_.submit(R"("workers": 5, "edge_bandwidth": "2GB/s", "allow_wait": true)");
  hand_.pass(61);
  EXPECT_THAT(hand_.supervisor.find(job)->reason(), HasSubstr("waits for a larger cluster: it needs at least 5 workers, and servers"));
}

TEST_P(SupervisorTest, ReservationsOfRingsNeverExceedTheirLinks) {
  // Rings over both servers at 0.6 of a link each: one at a time.
  std::vector<std::int64_t> jobs;
  for (int i = 0; i < 2; ++i) {
    jobs.push_back(hand_.submit(R"("workers": 2, "per_worker": {"cpu": 2.1}, "payload": true, "edge_bandwidth": "600MB/s")"));
  }
  const std::int64_t free = hand_.submit(R"("workers": 2, "per_worker": {"cpu": 1})");
  hand_.pass(61);
  EXPECT_NE(hand_.state(jobs[0]) == JobState::kStarting, hand_.state(jobs[1]) == JobState::kStarting);
  EXPECT_EQ(hand_.state(free), JobState::kStarting) << "it reserves nothing";
  EXPECT_EQ(hand_.supervisor.refusal(), "");
}

TEST_P(SupervisorTest, AJobThatCameWhileTheClockWasAheadDoesNotWaitForThatTime) {
  const std::int64_t job = hand_.submit();
  JobRow row = hand_.row(job);
  row.submitted_s += 1e6;
  SupervisorHand after(GetParam());
  ASSERT_TRUE(after.supervisor.restore({row}).ok());
  after.pass(1);
  EXPECT_EQ(after.state(job), JobState::kStarting);
}

TEST_P(SupervisorTest, ADamagedStoreIsSaidInALineAndNotStartedFrom) {
  const std::int64_t job = hand_.submit();
  hand_.pass(1);
  for (const std::string& ring : {std::string(), std::string("{"), std::string(R"({"slot": 0, "jobs": {}})")}) {
    JobRow row = hand_.row(job);
    row.ring = ring;
    SupervisorHand after(GetParam());
    EXPECT_THAT(base::message(after.supervisor.restore({row})),
                ::testing::HasSubstr("the store is damaged: job 1 is starting without a ring"));
  }
}

TEST_P(SupervisorTest, AfterARestartWhatRanIsAdoptedInPlaceAndOthersGetOnlyTheRest) {
  const std::int64_t job = hand_.submit(R"("workers": 6)");
  hand_.pass(1);
  hand_.all_started(job);
  const std::int64_t waiting = hand_.submit(R"("workers": 3)");
  const std::int64_t small = hand_.submit(R"("workers": 2)");
  const auto ring = hand_.supervisor.find(job)->ring;

  SupervisorHand after(GetParam());
  after.now_s = hand_.now_s + 100;
  std::vector<JobRow> rows = {hand_.row(job), hand_.row(waiting), hand_.row(small)};
  ASSERT_TRUE(after.supervisor.restore(rows).ok());
  after.pass(61);
  ASSERT_THAT(after.all<AdoptEpoch>(), SizeIs(1));
  EXPECT_EQ(after.all<AdoptEpoch>()[0].num_workers, 6);
  EXPECT_EQ(after.supervisor.find(job)->ring, ring);
  EXPECT_EQ(after.state(waiting), JobState::kQueued);
  EXPECT_EQ(after.state(small), JobState::kStarting);
  after.all_started(job);
  after.all_ended(job);
  EXPECT_EQ(after.state(job), JobState::kFinished);
  EXPECT_EQ(after.submit(), small + 1) << "numbers go on";
}

TEST_P(SupervisorTest, WhatTheCrashKeptFromStartingWaitsAgainAndCountsAsNoFailure) {
  const std::int64_t job = hand_.submit();
  hand_.pass(1);
  SupervisorHand after(GetParam());
  after.now_s = hand_.now_s + 1;
  ASSERT_TRUE(after.supervisor.restore({hand_.row(job)}).ok());
  after.supervisor.on_worker(
      {.kind = WorkerEventKind::kEnded, .id = {job, 1}, .rank = 0, .never_started = true, .exit = {1, 0, 0, "the daemon ended"}},
      after.now_s);
  EXPECT_EQ(after.state(job), JobState::kQueued);
  EXPECT_EQ(after.row(job).failures, 0);
  after.pass(1);
  EXPECT_EQ(after.row(job).epoch, 2);
}

TEST_P(SupervisorTest, AJobThatCannotBeStartedIsGivenUpInTheEnd) {
  const std::int64_t job = hand_.submit();
  for (int i = 1; i <= 3; ++i) {
    hand_.pass(1);
    ASSERT_EQ(hand_.row(job).epoch, i);
    hand_.supervisor.on_worker(
        {.kind = WorkerEventKind::kEnded, .id = {job, i}, .rank = 0, .never_started = true, .exit = {1, 0, 0, "no room"}}, hand_.now_s);
  }
  EXPECT_EQ(hand_.state(job), JobState::kFailed);
  EXPECT_THAT(hand_.row(job).reason, HasSubstr("no room"));
}

TEST_P(SupervisorTest, StartsThatFailedBeforeOneThatSucceededDoNotCount) {
  const std::int64_t job = hand_.submit(R"("retries": 1)");
  for (int i = 1; i <= 5; ++i) {
    hand_.pass(1);
    ASSERT_EQ(hand_.row(job).epoch, i);
    if (i == 3) {
      hand_.all_started(job);
      hand_.all_ended(job, 1);
    } else {
      hand_.supervisor.on_worker(
          {.kind = WorkerEventKind::kEnded, .id = {job, i}, .rank = 0, .never_started = true, .exit = {1, 0, 0, "no room"}}, hand_.now_s);
    }
    ASSERT_EQ(hand_.state(job), JobState::kQueued) << i;
  }
}

TEST_P(SupervisorTest, ACancelledJobThatWaitsIsGoneAtOnce) {
  const std::int64_t job = hand_.submit();
  hand_.supervisor.cancel(job, "cancelled by ann", hand_.now_s);
  EXPECT_EQ(hand_.state(job), JobState::kCancelled);
  hand_.pass(5);
  EXPECT_THAT(hand_.all<EpochOrder>(), SizeIs(0));
}

INSTANTIATE_TEST_SUITE_P(Policies, SupervisorTest, ::testing::Values("gadget", "fifo", "drf", "las"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(SupervisorAgeTest, AWideJobStartsUnderAStreamOfSmallHeavierOnes) {
  SupervisorHand hand("gadget", small_cluster(1, 4), {.age_s = 10});
  // Four small jobs at any time, of which one ends each second: there are never two free cores at once unless they are kept.
  const auto submit_small = [&] { return hand.submit(R"("utility": {"kind": "linear", "weight": 8})"); };
  std::vector<std::int64_t> small;
  for (int i = 0; i < 8; ++i) {
    small.push_back(submit_small());
  }
  hand.pass(1);
  const std::int64_t wide = hand.submit(R"("workers": 4)");
  int seconds = 0;
  for (; seconds < 3600 && hand.state(wide) == JobState::kQueued; ++seconds) {
    bool one_ended = false;
    for (std::int64_t& job : small) {
      if (hand.state(job) == JobState::kStarting) {
        hand.all_started(job);
      } else if (hand.state(job) == JobState::kRunning && !one_ended) {
        hand.all_ended(job);
        job = submit_small();
        one_ended = true;
      }
    }
    hand.pass(1);
  }
  EXPECT_EQ(hand.state(wide), JobState::kStarting);
  EXPECT_LT(seconds, 80) << "the weight of 8 is reached after 30 s, and the younger ones of that weight age, too";
}

}  // namespace
}  // namespace maypole::daemon
