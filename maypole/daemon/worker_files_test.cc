// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/worker_files.h"

#include "maypole/daemon/daemon_testing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace maypole::daemon {
namespace {

class WorkerFilesTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(WorkerFilesTest, AnOrderIsReadAsItWasWrittenWhateverItsBytes) {
  const WorkerOrder order{
      {"sh", "-c", "echo '\xff\n'"}, {"A=b\nc", "E="}, "/tmp/x y", 7, "/sys/fs/cgroup/a", {1, 3}, "/sys/fs/cgroup/b", 0.5, "boot",
      {MeetingRole::kGuest, "/x"}};
  ASSERT_TRUE(write_order(folder_.path(), order).ok());
  EXPECT_EQ(read_order(folder_.path()).value(), order);
}

TEST_F(WorkerFilesTest, OfManyWhoClaimAtOnceOneSucceeds) {
  std::vector<pid_t> children;
  constexpr int kClaimants = 16;
  for (int i = 0; i < kClaimants; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto claimed = claim_worker(folder_.path(), own_identity());
      ::_exit(claimed.ok() && *claimed ? 1 : 0);
    }
    children.push_back(child);
  }
  std::vector<pid_t> winners;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WEXITSTATUS(status) == 1) {
      winners.push_back(child);
    }
  }
  ASSERT_EQ(winners.size(), 1U);
  EXPECT_EQ(read_claim(folder_.path())->shim->pid, winners.front());
}

TEST_F(WorkerFilesTest, AClaimForNobodyKeepsEveryShimAway) {
  EXPECT_EQ(read_claim(folder_.path()).has_value(), false);
  EXPECT_TRUE(claim_worker(folder_.path(), std::nullopt).value());
  EXPECT_FALSE(claim_worker(folder_.path(), own_identity()).value());
  EXPECT_FALSE(read_claim(folder_.path())->shim.has_value());
}

TEST_F(WorkerFilesTest, AnExitIsThereOnlyOnceItWasWritten) {
  auto file = ExitFile::reserve(folder_.path());
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(read_exit(folder_.path()).has_value());
  const WorkerExit exit{127, 0, 1234.5, "cannot start 'nope': No such file"};
  ASSERT_TRUE(file->write(exit).ok());
  EXPECT_EQ(read_exit(folder_.path()), exit);
}

TEST_F(WorkerFilesTest, OutputKeepsItsPositionsWhileOldFilesGo) {
  OutputWriter writer(folder_.path());
  const std::string block(1U << 20U, 'x');
  constexpr std::uint64_t kBlocks = 100;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    std::string bytes = block;
    bytes.replace(0, 4, fmt::format("{:04}", i));
    writer.write(bytes);
  }
  const OutputPart tail = read_output(folder_.path(), (kBlocks - 1) << 20U, 4);
  EXPECT_EQ(tail.bytes, "0099");
  const OutputPart oldest = read_output(folder_.path(), 0, 4);
  EXPECT_EQ(oldest.start % OutputWriter::kFileBytes, 0U);
  EXPECT_GE(oldest.start, (kBlocks << 20U) - OutputWriter::kKeptFiles * OutputWriter::kFileBytes);
  EXPECT_EQ(oldest.bytes, fmt::format("{:04}", oldest.start >> 20U));
  EXPECT_EQ(read_output(folder_.path(), kBlocks << 20U, 10).bytes, "");
  EXPECT_EQ(read_output(folder_.path(), (48U << 20U) - 2, (4U << 20U)).start, std::max<std::uint64_t>((48U << 20U) - 2, oldest.start));
}

TEST(ProcessIdentityTest, AProcessOfTheSameNumberIsNotTheSame) {
  ProcessIdentity own = own_identity();
  EXPECT_TRUE(open_process(own)->valid());
  own.start_ticks += 1;
  EXPECT_FALSE(open_process(own)->valid());
  own = own_identity();
  own.boot = "another";
  EXPECT_FALSE(open_process(own)->valid());
}

TEST(ProcessIdentityTest, WhereNoDescriptorIsLeftAProcessDoesNotPassForOneThatHasEnded) {
  const ProcessIdentity own = own_identity();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = open_process(own).status();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace maypole::daemon
