// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

using testing::HasSubstr;

std::string refusal(std::string_view text) {
  const auto hosts = parse_hosts(text);
  return hosts.ok() ? "" : std::string(hosts.status().message());
}

TEST(Hosts, TakesNamesAddressesAndSlots) {
  const auto hosts = parse_hosts("s0:2,s1=10.0.0.7:4,u@s2:1,v6=[fd00::1]:3");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  ASSERT_EQ(hosts->size(), 4U);
  EXPECT_EQ((*hosts)[0].name, "s0");
  EXPECT_EQ((*hosts)[0].address, "");
  EXPECT_EQ((*hosts)[0].slots, 2);
  EXPECT_EQ((*hosts)[1].address, "10.0.0.7");
  EXPECT_EQ((*hosts)[1].slots, 4);
  EXPECT_EQ((*hosts)[2].name, "u@s2");
  EXPECT_EQ((*hosts)[3].address, "fd00::1");
}

TEST(Hosts, NamesTheEntryThatIsWrong) {
  EXPECT_THAT(refusal("s0:1,s1"), HasSubstr("'s1' has no number of slots"));
  EXPECT_THAT(refusal("s0:0"), HasSubstr("'s0:0' needs a whole number"));
  EXPECT_THAT(refusal("s0:x"), HasSubstr("'s0:x' needs a whole number"));
  EXPECT_THAT(refusal("s0:1,"), HasSubstr("'' has no number of slots"));
  EXPECT_THAT(refusal("=1.2.3.4:1"), HasSubstr("no proper host name"));
  EXPECT_THAT(refusal("a=:1"), HasSubstr("no proper address"));
  EXPECT_THAT(refusal("a=fd00::1:1"), HasSubstr("no proper address"));
  EXPECT_THAT(refusal("a:1,a:2"), HasSubstr("'a' is listed twice"));
}

TEST(Hosts, RefusesNamesThatALauncherCouldTakeForAnOptionOrShellSyntax) {
  EXPECT_NE(refusal("-oProxyCommand:1"), "");
  EXPECT_NE(refusal("a;b:1"), "");
  EXPECT_NE(refusal("a b:1"), "");
  EXPECT_NE(refusal("$(a):1"), "");
}

TEST(Hosts, FillsSlotsInListOrderAndLeavesOutEmptyHosts) {
  const auto placed = place_workers({{"a", "", 2}, {"b", "", 2}, {"c", "", 2}}, 3);
  ASSERT_TRUE(placed.ok());
  ASSERT_EQ(placed->size(), 2U);
  EXPECT_EQ((*placed)[0].num_workers, 2);
  EXPECT_EQ((*placed)[1].first_rank, 2);
  EXPECT_EQ((*placed)[1].num_workers, 1);
}

TEST(Hosts, UsesEverySlotWithoutANumberAndOneWorkerWithoutHosts) {
  EXPECT_EQ(place_workers({{"a", "", 2}, {"b", "", 1}}, 0)->back().first_rank, 2);
  const auto alone = place_workers({}, 0);
  ASSERT_EQ(alone->size(), 1U);
  EXPECT_EQ(alone->front().num_workers, 1);
  EXPECT_EQ(place_workers({}, 7)->front().num_workers, 7);
}

TEST(Hosts, SaysBothNumbersWhenSlotsAreMissing) {
  const auto placed = place_workers({{"a", "", 2}}, 5);
  EXPECT_THAT(std::string(placed.status().message()), testing::AllOf(HasSubstr("5 workers"), HasSubstr("2 slots")));
}

TEST(Hosts, KnowsThisMachineByNameAndLoopbackAddress) {
  EXPECT_TRUE(is_this_machine({"localhost", "", 1}));
  EXPECT_TRUE(is_this_machine({"anything", "127.0.0.2", 1}));
  EXPECT_TRUE(is_this_machine({"anything", "::1", 1}));
  EXPECT_FALSE(is_this_machine({"surely-another-machine", "", 1}));
}

}  // namespace
}  // namespace maypole::cli
