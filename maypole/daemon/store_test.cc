// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/store.h"

#include "maypole/daemon/daemon_testing.h"
#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace maypole::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

JobRow row_of(std::int64_t number) {
  JobRow row;
  row.number = number;
  row.owner = "admin";
  row.description = "{\"version\": 1, \"command\": [\"true\"]}";
  row.submitted_s = 1000.25;
  return row;
}

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(const StoreOptions& options = {}) {
    auto store = open_store(folder_.path() + "/store.db", options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  TemporaryFolder folder_;
};

TEST_F(StoreTest, WhatWasCommittedIsThereWhenItIsOpenedAgain) {
  JobRow row = row_of(1);
  std::string identity;
  {
    const auto store = open();
    identity = store->identity();
    ASSERT_TRUE(store->commit(std::vector{row, row_of(2)}).ok());
    row.state = JobState::kFailed;
    row.reason = "rank 1 failed with exit code 3";
    row.epoch = 4;
    row.ring = "{}";
    row.devices = "0;1";
    row.failures = 2;
    row.stopping = true;
    row.started_s = 1001;
    row.finished_s = 1002.5;
    row.exit_code = 3;
    ASSERT_TRUE(store->commit(std::vector{row}).ok());
  }
  const auto store = open();
  EXPECT_EQ(store->identity(), identity);
  EXPECT_THAT(store->jobs().value(), ElementsAre(row, row_of(2)));
}

TEST_F(StoreTest, ATransactionIsKeptAlsoWhenItsProcessIsKilledRightAfterIt) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = open();
    std::vector<JobRow> rows;
    for (int i = 1; i <= 100; ++i) {
      rows.push_back(row_of(i));
    }
    const char done = store->commit(rows).ok() ? 'y' : 'n';
    (void)!::write(ends[1], &done, 1);
    ::pause();
  }
  char done = '?';
  ASSERT_EQ(::read(ends[0], &done, 1), 1);
  ASSERT_EQ(done, 'y');
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(open()->jobs().value(), SizeIs(100));
}

TEST_F(StoreTest, AFullDiskKeepsNothingOfATransactionAndWhatWasThereStays) {
  const auto store = open({.max_pages = 12});
  ASSERT_TRUE(store->commit(std::vector{row_of(1)}).ok());
  JobRow large = row_of(3);
  large.description = std::string(200'000, 'x');
  const absl::Status status = store->commit(std::vector{row_of(2), large});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(store->jobs().value(), ElementsAre(row_of(1)));
  EXPECT_TRUE(store->commit(std::vector{row_of(2)}).ok()) << "there is room for a small one";
}

TEST_F(StoreTest, AFileThatIsNoStoreIsRefusedByName) {
  std::ofstream(folder_.path() + "/store.db") << std::string(5000, 'z');
  EXPECT_THAT(open_store(folder_.path() + "/store.db"), model::FailsWith("store.db"));
}

TEST_F(StoreTest, ADatabaseOfAnotherProgramIsRefusedAndStaysAsItWas) {
  const std::string path = folder_.path() + "/store.db";
  sqlite3* other = nullptr;
  ASSERT_EQ(::sqlite3_open(path.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(::sqlite3_exec(other, "CREATE TABLE mine (x)", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_THAT(open_store(path), model::FailsWith("is a database of another program"));
  EXPECT_EQ(::sqlite3_exec(other, "CREATE TABLE jobs (x)", nullptr, nullptr, nullptr), SQLITE_OK) << "ours was not made";
  ASSERT_EQ(::sqlite3_close(other), SQLITE_OK);
}

TEST_F(StoreTest, JobsAreForgottenAllOrNone) {
  const auto store = open();
  ASSERT_TRUE(store->commit(std::vector{row_of(1), row_of(2), row_of(3)}).ok());
  const std::vector<std::int64_t> numbers = {1, 3, 9};
  ASSERT_TRUE(store->remove_jobs(numbers).ok());
  EXPECT_THAT(store->jobs().value(), ElementsAre(row_of(2)));
}

TEST_F(StoreTest, AServerStaysClosedUntilItIsOpened) {
  const ClosedServer drained{"s1", "drained by ann", 7};
  {
    const auto store = open();
    ASSERT_TRUE(store->close_server({"s1", "drained by bob", 5}).ok());
    ASSERT_TRUE(store->close_server({"s0", "drained by bob", 5}).ok());
    ASSERT_TRUE(store->close_server(drained).ok());
    ASSERT_TRUE(store->open_server("s0").ok());
    ASSERT_TRUE(store->open_server("s7").ok());
  }
  EXPECT_THAT(open()->closed_servers().value(), ElementsAre(drained));
}

TEST_F(StoreTest, TokensAreKeptUntilTheyAreRemoved) {
  const auto store = open();
  const TokenRow token{"ann", Role::kUser, "abc", 5};
  ASSERT_TRUE(store->add_token(token).ok());
  ASSERT_TRUE(store->add_token({"root", Role::kAdmin, "def", 6}).ok());
  EXPECT_FALSE(store->add_token({"ann", Role::kAdmin, "ghi", 7}).ok());
  ASSERT_TRUE(store->remove_token("root").ok());
  EXPECT_THAT(store->tokens().value(), ElementsAre(token));
}

}  // namespace
}  // namespace maypole::daemon
