// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/failure.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <map>

namespace maypole::cli {
namespace {

int cause(const std::vector<Failure>& failures, const std::map<int, std::string>& errors) {
  return first_cause(failures, [&](int rank) { return errors.contains(rank) ? errors.at(rank) : ""; }).rank;
}

TEST(FirstCause, IsTheFirstThatWasSeen) {
  EXPECT_EQ(cause({{2, "a", {3, 0}}, {0, "a", {1, 0}}}, {{2, "ValueError"}, {0, "rank 2 is lost"}}), 2);
}

TEST(FirstCause, IsThePeerThatAFasterSurvivorSaysIsLost) {
  EXPECT_EQ(cause({{0, "a", {1, 0}}, {1, "a", {3, 0}}}, {{0, "Traceback\nerror: rank 1 on host b is lost\n"}, {1, "ValueError"}}), 1);
}

TEST(FirstCause, FollowsBlameFromRankToRank) {
  const std::vector<Failure> failures = {{0, "a", {1, 0}}, {1, "a", {1, 0}}, {2, "a", {0, SIGKILL}}};
  EXPECT_EQ(cause(failures, {{0, "rank 1 is lost"}, {1, "rank 2 is lost"}}), 2);
}

TEST(FirstCause, StaysWhenTheBlamedRankDidNotFailOrTheyBlameEachOther) {
  EXPECT_EQ(cause({{0, "a", {1, 0}}}, {{0, "rank 1 is lost"}}), 0);
  EXPECT_EQ(cause({{0, "a", {1, 0}}, {1, "a", {1, 0}}}, {{0, "rank 1 is lost"}, {1, "rank 0 is lost"}}), 0);
}

TEST(SilentRank, IsTheOneThatASurvivorSaysIsLostAndThatTheLauncherHadToEnd) {
  const auto errors = [](int rank) { return std::string(rank == 0 ? "error: rank 2 (host b) is lost: silent for 2 s\n" : ""); };
  const Failure survivor{0, "a", {1, 0}};
  const std::vector<Failure> ended = {{1, "a", {0, SIGTERM}}, {2, "b", {0, SIGKILL}}};
  const Failure* silent = silent_rank(survivor, ended, errors);
  ASSERT_NE(silent, nullptr);
  EXPECT_EQ(silent->rank, 2);
  EXPECT_EQ(silent_rank(survivor, {{1, "a", {0, SIGTERM}}}, errors), nullptr);
  EXPECT_EQ(silent_rank({1, "a", {1, 0}}, ended, errors), nullptr);
  EXPECT_EQ(silent_rank({-1, "a", {}}, ended, errors), nullptr);
}

TEST(Failure, IsDescribedInOneSentence) {
  EXPECT_EQ(describe(Failure{1, "s0", {3, 0}, 12.34, ""}), "rank 1 on host s0 failed with exit code 3 after 12.3 s");
  EXPECT_EQ(describe(Failure{1, "s0", {0, SIGKILL}, 0.5, ""}), "rank 1 on host s0 was killed by SIGKILL after 0.5 s");
  EXPECT_EQ(describe(Failure{0, "s0", {127, 0}, 0, "cannot start 'x': no"}), "rank 0 on host s0 did not start: cannot start 'x': no");
}

}  // namespace
}  // namespace maypole::cli
