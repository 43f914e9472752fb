// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/coordinator_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::elastic {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

CoordinatorOptions seated(int min, Seats seats, int max, int retries = 0) {
  CoordinatorOptions options{.min_workers = min, .max_workers = max, .workers = static_cast<int>(seats.size()), .retries = retries};
  options.seats = std::move(seats);
  return options;
}

std::vector<std::string> ring(const ScriptedRun& run) {
  std::vector<std::string> hosts;
  for (const Member& member : run.coordinator.membership().members) {
    hosts.push_back(member.host);
  }
  return hosts;
}

TEST(CoordinatorSeatsTest, FoundersStartOnTheHostsOfTheirSeats) {
  ScriptedRun run(seated(1, {"a", "b", "a"}, 8));
  run.begin(3);
  EXPECT_THAT(ring(run), ElementsAre("a", "b", "a"));
  EXPECT_TRUE(run.coordinator.resizable());
}

TEST(CoordinatorSeatsTest, ARunIsNotResizableBeforeItsWorkersAreInTheLoop) {
  ScriptedRun run(seated(1, {"a", "b"}, 8));
  run.ready(0);
  run.ready(1);
  run.enter();
  EXPECT_FALSE(run.coordinator.resizable());
  run.seats({"a"});
  ASSERT_EQ(run.answers.size(), 1U);
  EXPECT_TRUE(absl::IsUnavailable(run.answers[0]));
}

std::vector<double> rates(const ScriptedRun& run) {
  std::vector<double> found;
  for (const Member& member : run.coordinator.membership().members) {
    found.push_back(member.edge.bytes_per_second);
  }
  return found;
}

TEST(CoordinatorSeatsTest, EachAnnouncementSaysWhatIsReservedOnEveryEdge) {
  CoordinatorOptions options = seated(1, {"a", "b"}, 8);
  options.edges = {{10}, {20}};
  ScriptedRun run(options);
  run.begin(2);
  EXPECT_THAT(rates(run), ElementsAre(10, 20));
  run.seats({"a", "b", "c"}, {{1}, {2}, {3}});
  run.ready(2);
  run.stop();
  run.enter();
  EXPECT_THAT(rates(run), ElementsAre(1, 2, 3));
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus()));
}

TEST(CoordinatorSeatsTest, OtherRatesOfTheSameRingAreANewEpochAndTheSameRatesAreNone) {
  ScriptedRun run(seated(1, {"a", "b"}, 8));
  run.begin(2);
  run.seats({"a", "b"}, {{5}});
  EXPECT_THAT(run.asked_to_stop, ElementsAre(0, 1));
  run.stop();
  run.enter();
  EXPECT_THAT(rates(run), ElementsAre(5, 5));
  EXPECT_EQ(run.epoch(), 2U);
  run.seats({"a", "b"}, {{5}, {5}});
  EXPECT_EQ(run.epoch(), 2U);
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus(), absl::OkStatus()));
}

TEST(CoordinatorSeatsTest, WhereASeatStaysEmptyNoEdgeGetsMoreThanTheLeastThatIsReserved) {
  CoordinatorOptions options = seated(1, {"a", "b", "c"}, 8);
  options.edges = {{10}, {20}, {}};
  ScriptedRun run(options);
  run.begin(3);
  EXPECT_THAT(rates(run), ElementsAre(10, 20, 0));
  run.end(1);
  run.stop("worker 1 is lost");
  run.enter();
  EXPECT_THAT(rates(run), ElementsAre(10, 10));
}

TEST(CoordinatorSeatsTest, ANewcomerTakesItsPlaceInTheMiddleOfTheRing) {
  ScriptedRun run(seated(1, {"a", "c"}, 8));
  run.begin(2);
  run.seats({"a", "b", "c"});
  EXPECT_EQ(run.host_of[2], "b");
  EXPECT_THAT(run.asked_to_stop, IsEmpty()) << "nobody waits for one that is still starting";
  run.ready(2);
  run.stop();
  run.enter();
  EXPECT_THAT(ring(run), ElementsAre("a", "b", "c"));
  EXPECT_THAT(run.members(), ElementsAre(0, 2, 1));
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus()));
  EXPECT_EQ(run.coordinator.num_resizes(), 1);
}

TEST(CoordinatorSeatsTest, ThoseWithoutASeatLeave) {
  ScriptedRun run(seated(1, {"a", "a", "b", "b"}, 8));
  run.begin(4);
  run.seats({"b"});
  run.stop();
  EXPECT_THAT(run.told_to_leave, ElementsAre(0, 1, 3));
  for (const int leaver : {0, 1, 3}) {
    run.end(leaver, true);
  }
  run.enter();
  EXPECT_THAT(run.members(), ElementsAre(2));
  EXPECT_EQ(run.coordinator.num_failures(), 0);
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus()));
}

TEST(CoordinatorSeatsTest, ARingThatMovesAsAWholeKeepsOneUntilTheStateHasMoved) {
  ScriptedRun run(seated(1, {"a"}, 8));
  run.begin(1);
  run.seats({"b", "c"});
  run.ready(1);
  run.ready(2);
  run.stop();
  run.enter();
  EXPECT_THAT(run.members(), ElementsAre(0, 1, 2)) << "a new one gets the state from the last old one";
  EXPECT_THAT(run.answers, IsEmpty());
  run.stop();
  run.enter();
  EXPECT_THAT(ring(run), ElementsAre("b", "c"));
  EXPECT_THAT(run.told_to_leave, ElementsAre(0));
  EXPECT_THAT(run.answers, ElementsAre(absl::OkStatus()));
}

TEST(CoordinatorSeatsTest, ALostWorkerIsReplacedInItsSeat) {
  ScriptedRun run(seated(1, {"a", "b", "c"}, 8, 1));
  run.begin(3);
  run.end(1);
  EXPECT_EQ(run.host_of[3], "b");
  run.stop("rank 1 is lost");
  run.enter();
  EXPECT_THAT(ring(run), ElementsAre("a", "c"));
  run.ready(3);
  run.stop();
  run.enter();
  EXPECT_THAT(ring(run), ElementsAre("a", "b", "c"));
}

TEST(CoordinatorSeatsTest, WithoutRetriesTheSeatOfALostWorkerIsGivenUp) {
  ScriptedRun run(seated(1, {"a", "b", "c"}, 8));
  run.begin(3);
  run.end(1);
  run.stop("rank 1 is lost");
  run.enter();
  EXPECT_THAT(run.coordinator.seats(), ElementsAre("a", "c"));
  EXPECT_THAT(ring(run), ElementsAre("a", "c"));
}

TEST(CoordinatorSeatsTest, AMoveWhoseNewcomerFailsLeavesTheRingAsItWas) {
  ScriptedRun run(seated(1, {"a"}, 8));
  run.begin(1);
  run.seats({"b"});
  run.end(1);
  ASSERT_EQ(run.answers.size(), 1U);
  EXPECT_FALSE(run.answers[0].ok());
  EXPECT_THAT(run.coordinator.seats(), ElementsAre("a"));
  run.pass(seconds(20));
  EXPECT_THAT(ring(run), ElementsAre("a"));
  EXPECT_EQ(run.failure, std::nullopt);
  run.seats({"a", "a"});
  run.ready(2);
  run.stop();
  run.enter();
  EXPECT_THAT(ring(run), ElementsAre("a", "a"));
}

TEST(CoordinatorSeatsTest, ASecondRingIsRefusedWhileTheFirstIsNotInEffect) {
  ScriptedRun run(seated(1, {"a", "b"}, 8));
  run.begin(2);
  run.seats({"a"});
  run.seats({"b"});
  ASSERT_EQ(run.answers.size(), 1U);
  EXPECT_TRUE(absl::IsUnavailable(run.answers[0]));
  run.stop();
  run.enter();
  EXPECT_THAT(ring(run), ElementsAre("a"));
}

}  // namespace
}  // namespace maypole::elastic
