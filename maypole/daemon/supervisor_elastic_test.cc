// SPDX-License-Identifier: Apache-2.0
// Jobs whose workers come and go: when their rings change, and what is free meanwhile.
#include "maypole/daemon/supervisor_testing.h"
#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Plays the heads of elastic jobs.
class ElasticTest : public ::testing::Test {
 protected:
  explicit ElasticTest(SupervisorOptions options = {.slot_s = 10}) : hand_("gadget", small_cluster(), options) {}

  std::int64_t submit(const std::string& more) {
    const std::int64_t job = hand_.submit(more + (more.empty() ? "" : ", ") + R"("utility": {"kind": "sqrt"})");
    return job;
  }
  /// The job starts, and its workers come to the loop.
  void begin(std::int64_t job) {
    hand_.pass(1);
    ASSERT_EQ(hand_.state(job), JobState::kStarting);
    hand_.started(job, 0);
    HeadState& head = heads_[job];
    head = {};
    head.resizable = true;
    head.failures = hand_.row(job).failures;
    head.seats = head.living = head.members = ring(job);
    tell(job);
  }
  void tell(std::int64_t job) {
    hand_.supervisor.on_worker({.kind = WorkerEventKind::kState, .id = {job, hand_.row(job).epoch}, .exit = {}, .state = heads_[job]},
                               hand_.now_s);
  }
  [[nodiscard]] std::vector<std::string> ring(std::int64_t job) const {
    const auto& found = hand_.supervisor.find(job)->ring;
    return found ? found->ring : std::vector<std::string>();
  }
  /// The last order to the job's head.
  [[nodiscard]] std::optional<HeadOrder> order(std::int64_t job) const {
    std::optional<HeadOrder> last;
    for (const ResizeEpoch& resize : hand_.all<ResizeEpoch>()) {
      last = resize.id.job == job ? std::optional(resize.order) : last;
    }
    return last;
  }
  /// The head makes the ring; what leaves has ended with `gone`.
  void obey(std::int64_t job, bool gone = true) {
    const HeadOrder wanted = *order(job);
    HeadState& head = heads_[job];
    head.seen = head.done = wanted.number;
    std::vector<std::string> before = head.living;
    head.seats.clear();
    for (const WorkerPlace& place : wanted.ring) {
      head.seats.push_back(place.server);
    }
    head.members = head.seats;
    head.living = gone || before.size() < head.seats.size() ? head.seats : before;
    tell(job);
  }

  SupervisorHand hand_;
  std::map<std::int64_t, HeadState> heads_;
};

TEST_F(ElasticTest, AJobGrowsBySlotsWhenOthersEndAndNotBefore) {
  const std::int64_t other = hand_.submit(R"("workers": 6)");
  hand_.pass(1);
  hand_.all_started(other);
  const std::int64_t job = submit(R"("min_workers": 1, "max_workers": 8)");
  begin(job);
  EXPECT_THAT(ring(job), SizeIs(2));
  hand_.pass(21);
  EXPECT_THAT(hand_.all<ResizeEpoch>(), SizeIs(0)) << "there is nothing to grow into";
  hand_.pass(10 - std::fmod(hand_.now_s - 1'000'000, 10) + 1);  // into a slot
  hand_.all_ended(other);
  hand_.pass(7);
  EXPECT_THAT(hand_.all<ResizeEpoch>(), SizeIs(0)) << "within a slot what runs keeps its ring";
  hand_.pass(5);
  ASSERT_THAT(hand_.all<ResizeEpoch>(), SizeIs(1));
  EXPECT_THAT(order(job)->ring, SizeIs(8));
  EXPECT_THAT(ring(job), SizeIs(2)) << "it is not in effect";
  EXPECT_EQ(hand_.row(job).resizes, 0);
  obey(job);
  EXPECT_THAT(ring(job), SizeIs(8));
  EXPECT_EQ(hand_.row(job).resizes, 1);
  EXPECT_EQ(hand_.row(job).failures, 0);
  EXPECT_EQ(hand_.row(job).leaving, "");
  EXPECT_EQ(hand_.supervisor.refusal(), "");
}

TEST_F(ElasticTest, AJobShrinksForAWaitingJobsMinimumWhichStartsOnlyWhenTheLeaversAreGone) {
  const std::int64_t job = submit(R"("min_workers": 1, "max_workers": 8)");
  begin(job);
  ASSERT_THAT(ring(job), SizeIs(8));
  const std::int64_t waiting = hand_.submit(R"("workers": 3)");
  hand_.pass(12);
  ASSERT_THAT(hand_.all<ResizeEpoch>(), SizeIs(1));
  EXPECT_THAT(order(job)->ring, SizeIs(5));
  EXPECT_EQ(hand_.state(waiting), JobState::kQueued);
  obey(job, false);
  hand_.pass(2);
  EXPECT_EQ(hand_.state(waiting), JobState::kQueued) << "processes of the leavers may live";
  const std::int64_t late = hand_.submit(R"("workers": 1)");
  hand_.pass(1);
  EXPECT_EQ(hand_.state(late), JobState::kQueued) << "what is being freed has been given away";
  obey(job);
  hand_.pass(1);
  EXPECT_EQ(hand_.state(waiting), JobState::kStarting);
  EXPECT_EQ(hand_.row(job).resizes, 1);
  EXPECT_EQ(hand_.supervisor.refusal(), "");
}

TEST_F(ElasticTest, AScriptWithoutTheLoopKeepsItsRing) {
  const std::int64_t job = submit(R"("min_workers": 1, "max_workers": 8)");
  hand_.pass(1);
  hand_.started(job, 0);
  heads_[job].seats = heads_[job].living = ring(job);
  tell(job);
  const std::int64_t waiting = hand_.submit(R"("workers": 1)");
  hand_.pass(50);
  EXPECT_THAT(hand_.all<ResizeEpoch>(), SizeIs(0));
  EXPECT_EQ(hand_.state(waiting), JobState::kQueued);
}

TEST_F(ElasticTest, NobodyIsShrunkBelowTheMinimum) {
  const std::int64_t job = submit(R"("min_workers": 6, "max_workers": 8)");
  begin(job);
  const std::int64_t waiting = hand_.submit(R"("workers": 3, "utility": {"kind": "linear", "weight": 1000})");
  hand_.pass(50);
  EXPECT_EQ(hand_.state(waiting), JobState::kQueued);
  EXPECT_THAT(hand_.all<ResizeEpoch>(), SizeIs(0)) << "a change that lets nobody start is none";
  EXPECT_THAT(ring(job), SizeIs(8));
}

TEST_F(ElasticTest, AChangeThatFailedLeavesTheJobWhereItsHeadSaysAndIsNotTriedAgainSoon) {
  const std::int64_t other = hand_.submit(R"("workers": 6)");
  hand_.pass(1);
  hand_.all_started(other);
  const std::int64_t job = submit(R"("min_workers": 1, "max_workers": 8)");
  begin(job);
  hand_.all_ended(other);
  hand_.pass(12);
  ASSERT_THAT(hand_.all<ResizeEpoch>(), SizeIs(1));
  HeadState& head = heads_[job];
  head.seen = head.done = 1;
  head.problem = "worker 3 ended before it joined";
  head.seats = head.living;
  tell(job);
  EXPECT_THAT(ring(job), SizeIs(2));
  EXPECT_EQ(hand_.row(job).resizes, 0);
  hand_.pass(1);
  const std::int64_t next = hand_.submit(R"("workers": 6)");
  hand_.pass(1);
  EXPECT_EQ(hand_.state(next), JobState::kStarting) << "what it did not take is free";
  hand_.all_started(next);
  hand_.all_ended(next);
  hand_.pass(80);
  EXPECT_THAT(hand_.all<ResizeEpoch>(), SizeIs(1));
  hand_.pass(50);
  EXPECT_THAT(hand_.all<ResizeEpoch>(), SizeIs(2));
}

TEST_F(ElasticTest, AWorkerThatIsLostForGoodGivesItsPlaceBack) {
  const std::int64_t job = submit(R"("min_workers": 1, "max_workers": 8, "retries": 0)");
  begin(job);
  HeadState& head = heads_[job];
  head.failures = 1;
  head.seats.pop_back();
  head.members = head.seats;
  tell(job);
  EXPECT_EQ(hand_.row(job).failures, 1);
  const std::int64_t next = hand_.submit(R"("workers": 1)");
  hand_.pass(1);
  EXPECT_EQ(hand_.state(next), JobState::kQueued) << "its processes may live";
  head.living = head.seats;
  tell(job);
  hand_.pass(1);
  EXPECT_EQ(hand_.state(next), JobState::kStarting);
  EXPECT_EQ(hand_.row(job).resizes, 0);
}

TEST_F(ElasticTest, AnOrderThatWasLostWithTheDaemonIsGivenAgainAndWhatLeavesIsNotFree) {
  const std::int64_t job = submit(R"("min_workers": 1, "max_workers": 8)");
  begin(job);
  const std::int64_t waiting = hand_.submit(R"("workers": 3)");
  hand_.pass(12);
  ASSERT_EQ(hand_.row(job).order, 1);

  SupervisorHand after("gadget", small_cluster(), {.slot_s = 10});
  after.now_s = hand_.now_s + 1;
  ASSERT_TRUE(after.supervisor.restore({hand_.row(job), hand_.row(waiting)}).ok());
  after.pass(15);
  EXPECT_EQ(after.state(waiting), JobState::kQueued);
  EXPECT_THAT(after.supervisor.find(job)->ring->ring, SizeIs(8));
  ASSERT_THAT(after.all<AdoptEpoch>(), SizeIs(1));
  EXPECT_TRUE(after.all<AdoptEpoch>()[0].elastic);
  EXPECT_EQ(after.all<AdoptEpoch>()[0].num_workers, 1);
  after.supervisor.on_worker({.kind = WorkerEventKind::kStarted, .id = {job, 1}, .rank = 0}, after.now_s);
  after.supervisor.on_worker({.kind = WorkerEventKind::kState, .id = {job, 1}, .exit = {}, .state = heads_[job]}, after.now_s);
  after.pass(1);
  ASSERT_THAT(after.all<ResizeEpoch>(), SizeIs(1));
  EXPECT_EQ(after.all<ResizeEpoch>()[0].order, *order(job));
  HeadState state = heads_[job];
  state.seen = state.done = 1;
  state.seats.resize(0);
  const HeadOrder wanted = *order(job);
  for (const WorkerPlace& place : wanted.ring) {
    state.seats.push_back(place.server);
  }
  state.living = state.seats;
  after.supervisor.on_worker({.kind = WorkerEventKind::kState, .id = {job, 1}, .exit = {}, .state = state}, after.now_s);
  after.pass(1);
  EXPECT_EQ(after.state(waiting), JobState::kStarting);
  EXPECT_EQ(after.row(job).resizes, 1);
}

TEST_F(ElasticTest, AJobThatEndsWhileItsRingChangesFreesAll) {
  const std::int64_t job = submit(R"("min_workers": 1, "max_workers": 8)");
  begin(job);
  const std::int64_t waiting = hand_.submit(R"("workers": 3)");
  hand_.pass(12);
  ASSERT_TRUE(order(job).has_value());
  hand_.ended(job, 0);
  EXPECT_EQ(hand_.state(job), JobState::kFinished);
  hand_.pass(1);
  EXPECT_EQ(hand_.state(waiting), JobState::kStarting);
  const std::int64_t rest = hand_.submit(R"("workers": 5)");
  hand_.pass(1);
  EXPECT_EQ(hand_.state(rest), JobState::kStarting);
}

TEST_F(ElasticTest, AJobWhoseHeadFailsIsRetriedAsAWhole) {
  const std::int64_t job = submit(R"("min_workers": 1, "max_workers": 4, "retries": 1)");
  begin(job);
  hand_.ended(job, 0, 0, 9);
  EXPECT_EQ(hand_.state(job), JobState::kQueued);
  begin(job);
  EXPECT_EQ(hand_.all<EpochOrder>().back().elastic->failures, 1);
  hand_.ended(job, 0, 3);
  EXPECT_EQ(hand_.state(job), JobState::kFailed);
  EXPECT_EQ(hand_.row(job).exit_code, 3);
  EXPECT_THAT(hand_.row(job).reason, HasSubstr("exit code 3"));
}

}  // namespace
}  // namespace maypole::daemon
