// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/event_feed.h"

#include "maypole/daemon/api_testing.h"
#include "maypole/formats/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EventFeedTest : public ::testing::Test {
 protected:
  /// What was told since the last call.
  std::string news() {
    const auto part = daemon_.events.read(next_, 1U << 20U);
    next_ = part->next;
    return part->text;
  }
  FakeDaemon daemon_;
  std::uint64_t next_ = daemon_.events.start("").next;
};

TEST_F(EventFeedTest, AJobsWayIsTold) {
  ASSERT_EQ(daemon_.submit().status, 201);
  EXPECT_THAT(news(), HasSubstr("event: job\ndata: {\"id\": \"1\""));
  daemon_.pass(1);
  const std::string started = news();
  EXPECT_THAT(started, HasSubstr("\"state\": \"starting\""));
  EXPECT_THAT(started, HasSubstr("event: decision"));
  EXPECT_THAT(started, HasSubstr(R"("changes": [{"id": "1", "from": 0, "to": 1}])"));
  EXPECT_THAT(started, HasSubstr("event: cluster"));
  EXPECT_THAT(started, HasSubstr(R"("jobs": ["1"])"));
  daemon_.executor.events = {{.kind = WorkerEventKind::kEnded, .id = {1, 1}, .rank = 0, .exit = {}}};
  daemon_.pass(1);
  const std::string ended = news();
  EXPECT_THAT(ended, HasSubstr("\"state\": \"finished\""));
  EXPECT_THAT(ended, HasSubstr("event: cluster"));
  EXPECT_THAT(ended, Not(HasSubstr(R"("jobs": ["1"])")));
}

TEST_F(EventFeedTest, WhatIsNotDurableIsNotTold) {
  daemon_.store.full = true;
  EXPECT_EQ(daemon_.submit().status, 507);
  EXPECT_THAT(news(), Not(HasSubstr("event: job")));
  daemon_.store.full = false;
  ASSERT_EQ(daemon_.submit().status, 201);
  (void)news();
  daemon_.store.full = true;
  daemon_.pass(1);
  EXPECT_THAT(news(), Not(HasSubstr("event: job")));
  daemon_.store.full = false;
  daemon_.pass(1);
  EXPECT_THAT(news(), HasSubstr("\"state\": \"starting\""));
}

TEST_F(EventFeedTest, EveryEventIsOneLineOfJson) {
  ASSERT_EQ(daemon_.ask("POST", "/v1/jobs", R"({"version": 1, "name": "two\nlines", "command": ["x"]})").status, 201);
  daemon_.pass(1);
  const std::string text = news();
  int checked = 0;
  for (std::size_t at = text.find("data: "); at != std::string::npos; at = text.find("data: ", at + 1)) {
    EXPECT_TRUE(formats::parse_json(text.substr(at + 6, text.find('\n', at) - at - 6), "event").ok());
    ++checked;
  }
  EXPECT_GE(checked, 4);
}

TEST_F(EventFeedTest, WorkersOverTimeAndDecisionsOfAJobAreRemembered) {
  ASSERT_EQ(daemon_.submit().status, 201);
  ASSERT_EQ(daemon_.submit().status, 201);
  daemon_.pass(1);
  daemon_.executor.events = {{.kind = WorkerEventKind::kEnded, .id = {1, 1}, .rank = 0, .exit = {}}};
  daemon_.pass(1);
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/1/history").body,
            R"({"since_s": 1000000, "workers": [[1000000, 0], [1000000.25, 1], [1000001, 0]]})");
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/7/history").status, 404);
  EXPECT_THAT(daemon_.ask("GET", "/v1/decisions?job=1").body, HasSubstr(R"({"id": "1", "from": 0, "to": 1})"));
  EXPECT_EQ(daemon_.ask("GET", "/v1/decisions?job=7").status, 404);
  EXPECT_THAT(daemon_.ask("GET", "/v1/decisions").body, HasSubstr("\"number\": 1"));
}

TEST_F(EventFeedTest, AClosedServerAndAForgottenJobAreTold) {
  ASSERT_EQ(daemon_.ask("POST", "/v1/servers/s1/drain").status, 200);
  daemon_.pass(1);
  EXPECT_THAT(news(), HasSubstr(R"("closed": "drained by root")"));
  ASSERT_EQ(daemon_.ask("POST", "/v1/servers/s1/undrain").status, 200);
  daemon_.pass(1);
  EXPECT_THAT(news(), HasSubstr(R"({"id": "s1", "rack": "r0", "closed": null)"));
  ASSERT_EQ(daemon_.submit().status, 201);
  daemon_.pass(1);
  daemon_.executor.events = {{.kind = WorkerEventKind::kEnded, .id = {1, 1}, .rank = 0, .exit = {}}};
  daemon_.pass(1);
  daemon_.supervisor.forget(1);
  daemon_.pass(1);
  EXPECT_THAT(news(), HasSubstr("event: gone\ndata: {\"id\": \"1\"}"));
}

TEST_F(EventFeedTest, LinksSayWhatIsReservedOnThem) {
  EXPECT_THAT(daemon_.ask("GET", "/v1/cluster").body, Not(HasSubstr("\"reserved\": 1")));
  const Response response = daemon_.ask("POST", "/v1/jobs",
                                        R"({"version": 1, "command": ["x"], "workers": 2, "min_workers": 2, "max_workers": 2, )"
                                        R"("per_worker": {"cpu": 4}, "edge_bandwidth": "100Mbps"})");
  ASSERT_EQ(response.status, 201) << response.body;
  daemon_.pass(1);
  const std::string link = R"({"id": "s0>r0", "from": "s0", "to": "r0", "bandwidth": 1000000000, "reserved": 11875000})";
  EXPECT_THAT(daemon_.ask("GET", "/v1/cluster").body, HasSubstr(link));
  EXPECT_THAT(news(), HasSubstr(link));
}

}  // namespace
}  // namespace maypole::daemon
