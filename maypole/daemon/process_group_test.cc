// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/process_group.h"

#include "maypole/net/child_process.h"

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>

namespace maypole::daemon {
namespace {

class ProcessGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string parent = parent_of_groups();
    if (parent.empty()) {
      GTEST_SKIP() << "this user makes no control groups here";
    }
    group_ = parent + "/maypole-test-" + std::to_string(::getpid());
    ASSERT_TRUE(make_group(group_).ok());
  }
  void TearDown() override {
    while (!group_.empty() && !end_group(group_)) {
    }
  }
  /// A shell in the group, which prints a line when it has come to its end.
  [[nodiscard]] net::Child start(const std::string& script) const {
    net::ChildOptions options;
    options.command = {"sh", "-c", script};
    options.environment = net::current_environment();
    options.standard_output = net::Stdio::kPipe;
    options.control_groups = {group_};
    return net::start_child(options).value();
  }
  std::string group_;
};

TEST_F(ProcessGroupTest, WhatChangedItsSessionItsParentAndItsEnvironmentIsEndedToo) {
  const net::Child shell = start("setsid env -i sleep 1000 >/dev/null & echo $!");
  ASSERT_EQ(::waitpid(shell.pid, nullptr, 0), shell.pid);
  std::array<char, 32> text{};
  ASSERT_GT(::read(shell.output.get(), text.data(), text.size() - 1), 0);
  const std::string process = "/proc/" + std::to_string(std::stoi(text.data()));
  ASSERT_TRUE(std::filesystem::exists(process));
  while (!end_group(group_)) {
  }
  EXPECT_FALSE(std::filesystem::exists(group_));
  const std::string stat = net::read_small_file(process + "/stat");
  EXPECT_TRUE(stat.empty() || stat.find(") Z ") != std::string::npos || stat.find(") X ") != std::string::npos) << stat;
}

TEST_F(ProcessGroupTest, GroupsThatWereMadeBelowItGoToo) {
  ASSERT_TRUE(make_group(group_ + "/inner").ok());
  while (!end_group(group_)) {
  }
  EXPECT_FALSE(std::filesystem::exists(group_));
}

TEST(QuotaTest, IsKeptByTheGroupAndGoesWithIt) {
  const std::string parent = parent_of_quotas();
  if (parent.empty()) {
    GTEST_SKIP() << "this user limits no cores here";
  }
  const std::string group = parent + "/maypole-quota-" + std::to_string(::getpid());
  ASSERT_TRUE(make_group(group).ok());
  EXPECT_TRUE(limit_cores(group, 0.25).ok());
  const bool second_version = std::filesystem::exists(group + "/cpu.max");
  EXPECT_EQ(net::read_small_file(group + (second_version ? "/cpu.max" : "/cpu.cfs_quota_us")),
            second_version ? "25000 100000\n" : "25000\n");
  EXPECT_TRUE(end_group(group));
  EXPECT_FALSE(limit_cores(group, 0.25).ok());
}

TEST_F(ProcessGroupTest, AGroupThatIsNotThereIsEnded) { EXPECT_TRUE(end_group(group_ + "-not")); }

}  // namespace
}  // namespace maypole::daemon
