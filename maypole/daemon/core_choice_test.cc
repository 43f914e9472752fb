// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/core_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

model::Cluster servers_with(const std::vector<double>& cores) {
  model::ClusterParts parts;
  parts.resources = {"cpu"};
  parts.racks = {"r"};
  for (std::size_t i = 0; i < cores.size(); ++i) {
    parts.servers.push_back({"s" + std::to_string(i), model::RackId(0), model::Amounts(1, cores[i])});
  }
  return model::Cluster::make(std::move(parts)).value();
}

TEST(CoreChoiceTest, ServersDivideTheMachinesCoresInOrder) {
  EXPECT_THAT(divide_cores(servers_with({2, 1}), {0, 2, 4, 6}), ElementsAre(Pair("s0", ElementsAre(0, 2)), Pair("s1", ElementsAre(4))));
}

TEST(CoreChoiceTest, MoreCoresThanThereAreOrPartsOfOneAreNotDivided) {
  EXPECT_THAT(divide_cores(servers_with({2, 3}), {0, 1, 2, 3}), IsEmpty());
  EXPECT_THAT(divide_cores(servers_with({0.5}), {0, 1}), IsEmpty());
  EXPECT_EQ(declared_cores(servers_with({2, 3.5})), 5.5);
}

TEST(CoreChoiceTest, AWorkerGetsTheLowestFreeOnesOrNoneOfItsOwn) {
  EXPECT_THAT(choose_cores({4, 5, 6, 7}, {5}, 2), ElementsAre(4, 6));
  EXPECT_THAT(choose_cores({4, 5}, {5}, 2), IsEmpty());
  EXPECT_THAT(choose_cores({4, 5}, {}, 0.5), IsEmpty());
  EXPECT_THAT(choose_cores({4, 5}, {}, 0), IsEmpty());
}

TEST(CoreChoiceTest, ThisProcessHasACore) { EXPECT_FALSE(usable_cores().empty()); }

}  // namespace
}  // namespace maypole::daemon
