// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::elastic {
namespace {

using ::testing::IsEmpty;

std::vector<WorkerId> ids(std::initializer_list<int> numbers) {
  std::vector<WorkerId> workers;
  for (const int number : numbers) {
    workers.emplace_back(number);
  }
  return workers;
}

TEST(MembershipTest, RanksAreThePlacesInTheGivenOrder) {
  const Membership membership{3, {{WorkerId(7), "a", "a:1"}, {WorkerId(2), "b", "b:1"}, {WorkerId(9), "a", "a:2"}}};
  EXPECT_EQ(membership.rank_of(WorkerId(7)), 0);
  EXPECT_EQ(membership.rank_of(WorkerId(9)), 2);
  EXPECT_EQ(membership.rank_of(WorkerId(1)), std::nullopt);
}

TEST(MembershipTest, LocalRanksCountTheMembersOfOneHost) {
  const Membership membership{3, {{WorkerId(7), "a", ""}, {WorkerId(2), "b", ""}, {WorkerId(9), "a", ""}, {WorkerId(4), "b", ""}}};
  EXPECT_EQ(membership.local_rank(0), 0);
  EXPECT_EQ(membership.local_rank(1), 0);
  EXPECT_EQ(membership.local_rank(2), 1);
  EXPECT_EQ(membership.local_rank(3), 1);
}

TEST(MembershipTest, NewcomersFollowTheSurvivors) {
  const Change change = change_to(ids({4, 1, 3}), ids({6, 7}), 5);
  EXPECT_EQ(change.members, ids({4, 1, 3, 6, 7}));
  EXPECT_THAT(change.leavers, IsEmpty());
}

TEST(MembershipTest, TheLastOnesLeaveFirst) {
  const Change change = change_to(ids({4, 1, 3}), {}, 1);
  EXPECT_EQ(change.members, ids({4}));
  EXPECT_EQ(change.leavers, ids({1, 3}));
}

TEST(MembershipTest, NewcomersBeyondTheTargetStayOutside) {
  EXPECT_EQ(change_to(ids({0}), ids({1, 2, 3}), 2).members, ids({0, 1}));
  EXPECT_EQ(change_to(ids({0, 5}), ids({1}), 1).members, ids({0}));
}

}  // namespace
}  // namespace maypole::elastic
