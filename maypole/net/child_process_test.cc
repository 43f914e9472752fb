// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <string>

namespace maypole::net {
namespace {

std::string read_all(const base::Fd& fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got <= 0) {
      return text;
    }
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

ChildOptions shell(const std::string& script) {
  ChildOptions options;
  options.command = {"sh", "-c", script};
  options.environment = {"PATH=/usr/bin:/bin", "COLOUR=blue"};
  options.standard_input = Stdio::kNull;
  options.standard_output = Stdio::kPipe;
  options.standard_error = Stdio::kPipe;
  return options;
}

ExitStatus wait_for(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status), 0};
}

TEST(ChildProcess, KeepsTheTwoOutputStreamsApart) {
  auto child = start_child(shell("echo out; echo err >&2; exit 3"));
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(read_all(child->output), "out\n");
  EXPECT_EQ(read_all(child->error), "err\n");
  EXPECT_EQ(wait_for(child->pid).code, 3);
}

TEST(ChildProcess, GivesTheChildTheEnvironmentAndDirectoryOfTheOptionsOnly) {
  ChildOptions options = shell("echo $COLOUR-$HOME-$(pwd)");
  options.directory = "/";
  auto child = start_child(options);
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(read_all(child->output), "blue--/\n");
  EXPECT_TRUE(wait_for(child->pid).success());
}

TEST(ChildProcess, NamesTheProgramThatDoesNotExist) {
  ChildOptions options = shell("");
  options.command = {"no-such-program"};
  const auto child = start_child(options);
  EXPECT_EQ(child.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(child.status().message()), testing::HasSubstr("'no-such-program'"));
}

TEST(ChildProcess, NamesTheDirectoryThatDoesNotExist) {
  ChildOptions options = shell("true");
  options.directory = "/no/such/place";
  EXPECT_THAT(std::string(start_child(options).status().message()), testing::HasSubstr("'/no/such/place'"));
}

TEST(ChildProcess, ClosesEveryDescriptorButTheInheritedOne) {
  auto other = start_child(shell("true"));
  ASSERT_TRUE(other.ok());
  ChildOptions options = shell("ls /proc/self/fd | wc -l");
  auto without = start_child(options);
  ASSERT_TRUE(without.ok());
  options.inherited_fds = {other->output.get()};
  auto with = start_child(options);
  ASSERT_TRUE(with.ok());
  const int plain = std::stoi(read_all(without->output));
  EXPECT_EQ(std::stoi(read_all(with->output)), plain + 1);
  static_cast<void>(wait_for(other->pid));
  static_cast<void>(wait_for(without->pid));
  static_cast<void>(wait_for(with->pid));
}

TEST(ChildProcess, DescribesCodesAndSignals) {
  EXPECT_EQ(describe({3, 0}), "exited with code 3");
  EXPECT_EQ(describe({0, SIGKILL}), "was killed by SIGKILL");
  EXPECT_EQ((ExitStatus{0, SIGTERM}).shell_code(), 143);
}

TEST(ChildProcess, FilesThatCannotBeReadAreEmpty) {
  EXPECT_THAT(read_small_file("/proc/self/stat"), ::testing::StartsWith(std::to_string(::getpid()) + " ("));
  EXPECT_EQ(read_small_file("/proc/self/mem"), "");  // opens, and reading fails, as with a process that has ended since
  EXPECT_EQ(read_small_file("/proc/no-such-process/stat"), "");
}

TEST(ChildProcess, EndsOrphansThatLeftTheirSession) {
  const Subreaper subreaper;
  auto child = start_child(shell("setsid sleep 1000 >/dev/null 2>&1 & echo started"));
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(read_all(child->output), "started\n");
  EXPECT_EQ(subreaper.kill_descendants(std::chrono::seconds(20)), 0U);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

}  // namespace
}  // namespace maypole::net
