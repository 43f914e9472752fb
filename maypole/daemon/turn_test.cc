// SPDX-License-Identifier: Apache-2.0
// The order of commit, action and answer, with a store that is full at the wrong moment. That an order is durable before it is carried out,
// and carried out once, is checked by the executor of every test here.
#include "maypole/daemon/api_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TurnTest, AFullStoreTakesNoJobAndSaysSo) {
  FakeDaemon daemon;
  daemon.store.full = true;
  const Response refused = daemon.submit();
  EXPECT_EQ(refused.status, 507);
  EXPECT_THAT(refused.body, HasSubstr("full"));
  EXPECT_THAT(daemon.supervisor.jobs(), IsEmpty());
  daemon.pass(1);
  EXPECT_THAT(daemon.executor.started, IsEmpty());
  daemon.store.full = false;
  EXPECT_EQ(daemon.submit().status, 201);
  daemon.pass(1);
  EXPECT_EQ(daemon.executor.started.size(), 1U);
}

TEST(TurnTest, WhatIsDecidedWhileTheStoreIsFullIsDoneOnceItHasRoom) {
  FakeDaemon daemon;
  ASSERT_EQ(daemon.submit().status, 201);
  daemon.store.full = true;
  daemon.pass(3);
  EXPECT_THAT(daemon.executor.started, IsEmpty());
  EXPECT_TRUE(daemon.turn.blocked());
  daemon.store.full = false;
  daemon.pass(1);
  EXPECT_THAT(daemon.executor.started, ElementsAre(EpochId{1, 1}));
  EXPECT_FALSE(daemon.turn.blocked());
}

TEST(TurnTest, RunningJobsGoOnAndTheirEndIsKeptLater) {
  FakeDaemon daemon;
  ASSERT_EQ(daemon.submit().status, 201);
  daemon.pass(1);
  daemon.executor.events = {{.kind = WorkerEventKind::kStarted, .id = {1, 1}, .rank = 0}};
  daemon.pass(1);
  daemon.store.full = true;
  daemon.executor.events = {{.kind = WorkerEventKind::kEnded, .id = {1, 1}, .rank = 0, .exit = {}}};
  daemon.pass(1);
  EXPECT_THAT(daemon.executor.stopped, IsEmpty());
  EXPECT_EQ(daemon.store.kept.at(1).state, JobState::kRunning);
  daemon.store.full = false;
  daemon.pass(1);
  EXPECT_EQ(daemon.store.kept.at(1).state, JobState::kFinished);
}

TEST(TurnTest, ACancellationIsAcknowledgedOnlyWhenItIsDurable) {
  FakeDaemon daemon;
  ASSERT_EQ(daemon.submit().status, 201);
  daemon.pass(1);
  daemon.store.full = true;
  const Response answer = daemon.ask("POST", "/v1/jobs/1/cancel");
  EXPECT_EQ(answer.status, 507);
  EXPECT_THAT(answer.body, HasSubstr("it is done once there is room"));
  EXPECT_THAT(daemon.executor.stopped, IsEmpty());
  daemon.store.full = false;
  daemon.pass(1);
  EXPECT_THAT(daemon.executor.stopped, ElementsAre(EpochId{1, 1}));
}

TEST(TurnTest, AllThatIsAskedAtOnceIsOneCommit) {
  FakeDaemon daemon;
  std::vector<Letter> letters(100);
  for (Letter& letter : letters) {
    letter.request = {
        .method = "POST", .path = "/v1/jobs", .query = {}, .body = R"({"version": 1, "command": ["x"]})", .token = daemon.admin};
  }
  daemon.turn.run(std::move(letters), daemon.now_s);
  EXPECT_EQ(daemon.store.commits, 1);
  EXPECT_EQ(daemon.store.kept.size(), 100U);
}

}  // namespace
}  // namespace maypole::daemon
