// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/meeting.h"

#include "maypole/net/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace maypole::daemon {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MeetingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "meeting-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] absl::StatusOr<std::optional<MeetingPlace>> attempt(MeetingRole role) const { return try_to_meet({role, folder_}); }
  std::string folder_;
};

TEST_F(MeetingTest, WhoeverComesFirstWaitsAndAllLearnTheSamePlace) {
  if (net::global_addresses().empty()) {
    GTEST_SKIP() << "this machine has no address beside loopback";
  }
  EXPECT_FALSE(attempt(MeetingRole::kGuest)->has_value());
  EXPECT_FALSE(attempt(MeetingRole::kHost)->has_value());
  EXPECT_FALSE(attempt(MeetingRole::kWitness)->has_value());
  const auto host = attempt(MeetingRole::kHost);
  ASSERT_TRUE(host.ok() && host->has_value()) << host.status();
  EXPECT_TRUE((*host)->socket.valid());
  EXPECT_THAT((*host)->variables, Contains(StartsWith("MAYPOLE_RENDEZVOUS_FD=")));
  for (const MeetingRole role : {MeetingRole::kWitness, MeetingRole::kGuest}) {
    const auto guest = attempt(role);
    ASSERT_TRUE(guest.ok() && guest->has_value());
    EXPECT_FALSE((*guest)->socket.valid());
    for (const std::string& variable : (*guest)->variables) {
      EXPECT_THAT((*host)->variables, Contains(variable));
    }
    EXPECT_THAT((*guest)->variables, Contains(StartsWith("MAYPOLE_RENDEZVOUS=")));
  }
}

TEST_F(MeetingTest, WorkersOfOneServerMeetAtLoopback) {
  const auto host = attempt(MeetingRole::kHostAlone);
  ASSERT_TRUE(host.ok() && host->has_value());
  EXPECT_THAT((*host)->variables, Contains("MASTER_ADDR=127.0.0.1"));
  EXPECT_TRUE(attempt(MeetingRole::kGuest)->has_value());
}

TEST_F(MeetingTest, AWitnessWithoutAnAddressIsAnError) {
  std::ofstream(folder_ + "/seen_from").flush();
  EXPECT_THAT(std::string(attempt(MeetingRole::kHost).status().message()), HasSubstr("no address beside loopback"));
}

}  // namespace
}  // namespace maypole::daemon
