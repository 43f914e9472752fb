// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/retention.h"

#include "maypole/daemon/api_testing.h"
#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RetentionTest : public ::testing::Test {
 protected:
  /// Submits a job and cancels it, so many seconds after the last one.
  void ended_job(double seconds) {
    daemon_.now_s += seconds;
    const std::string body = daemon_.submit().body;
    ++last_;
    EXPECT_EQ(daemon_.ask("POST", fmt::format("/v1/jobs/{}/cancel", last_)).status, 200) << body;
  }
  std::vector<std::int64_t> expired_by(const std::string& keep) {
    return expired(daemon_.supervisor.jobs(), *parse_keep_ended(keep), daemon_.now_s);
  }
  FakeDaemon daemon_;
  std::int64_t last_ = 0;
};

TEST_F(RetentionTest, JobsAreKeptByAgeOrByNumberAndThoseThatHaveNotEndedAlways) {
  ASSERT_EQ(daemon_.submit().status, 201);
  ++last_;
  ended_job(0);
  ended_job(3600);
  ended_job(1800);
  ended_job(10);
  EXPECT_THAT(expired_by("1h"), ElementsAre(2));
  EXPECT_THAT(expired_by("30min"), ElementsAre(2, 3));
  EXPECT_THAT(expired_by("3"), ElementsAre(2));
  EXPECT_THAT(expired_by("9"), IsEmpty());
  EXPECT_THAT(expired_by("forever"), IsEmpty());
}

TEST_F(RetentionTest, TheJobOfTheHighestNumberStaysSoThatNoNumberComesTwice) {
  ended_job(0);
  ended_job(0);
  daemon_.now_s += 10;
  EXPECT_THAT(expired_by("0"), ElementsAre(1));
  EXPECT_THAT(expired_by("1s"), ElementsAre(1));
}

TEST_F(RetentionTest, WhatIsForgottenIsGoneFromMemoryStoreAndDisk) {
  for (int i = 0; i < 120; ++i) {
    ended_job(0);
  }
  Retention retention(daemon_.store, daemon_.supervisor, daemon_.executor, *parse_keep_ended("10"));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(retention.run(daemon_.now_s).ok());
    daemon_.now_s = retention.next_s();
  }
  EXPECT_EQ(daemon_.supervisor.jobs().size(), 10U);
  EXPECT_EQ(daemon_.supervisor.jobs().begin()->first, 111);
  EXPECT_EQ(daemon_.store.kept.size(), 10U);
  EXPECT_EQ(daemon_.executor.forgotten.size(), 110U);
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/1").status, 404);
}

TEST_F(RetentionTest, WhatTheStoreDoesNotForgetIsKept) {
  ended_job(0);
  ended_job(0);
  daemon_.store.full = true;
  Retention retention(daemon_.store, daemon_.supervisor, daemon_.executor, *parse_keep_ended("0"));
  EXPECT_FALSE(retention.run(daemon_.now_s).ok());
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/1").status, 200);
  daemon_.store.full = false;
  ASSERT_TRUE(retention.run(retention.next_s()).ok());
  EXPECT_EQ(daemon_.ask("GET", "/v1/jobs/1").status, 404);
}

TEST_F(RetentionTest, WhatIsNeitherATimeNorANumberIsRefused) {
  for (const char* text : {"", "-1", "always", "3 fortnights"}) {
    EXPECT_THAT(parse_keep_ended(text), model::FailsWith("'")) << text;
  }
}

}  // namespace
}  // namespace maypole::daemon
