// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_view.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::string_view kRunning =
    R"({"id": "7", "name": "a \"b\"", "owner": "ann", "state": "running", "reason": "", "workers": 2, "min_workers": 1, )"
    R"("max_workers": 4, "servers": ["s0", "s1"], "ring": ["s1", "s0"], "submitted_s": 1000.5, "started_s": 1001, "finished_s": null, )"
    R"("exit_code": null, "retries": 1, "later": {"id": "x", "ring": ["y"], "workers": [9]}, "resizes": 0})";

TEST(JobViewTest, AJobIsReadFromTheDaemonsAnswerAndLaterFieldsArePassedOver) {
  const auto job = parse_job(kRunning);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id, "7");
  EXPECT_EQ(job->name, "a \"b\"");
  EXPECT_EQ(job->owner, "ann");
  EXPECT_EQ(job->state, "running");
  EXPECT_EQ(job->workers, 2);
  EXPECT_EQ(job->min_workers, 1);
  EXPECT_EQ(job->max_workers, 4);
  EXPECT_THAT(job->ring, ElementsAre("s1", "s0"));
  EXPECT_EQ(job->submitted_s, 1000.5);
  EXPECT_EQ(job->started_s, 1001);
  EXPECT_EQ(job->finished_s, std::nullopt);
  EXPECT_EQ(job->exit_code, std::nullopt);
  EXPECT_EQ(job->retries, 1);
}

TEST(JobViewTest, AListIsReadJobByJob) {
  const std::string text = fmt::format(R"({{"jobs": [{0}, {{"id": "8", "state": "failed", "exit_code": 3}}], "left_out": 12}})", kRunning);
  const auto jobs = parse_jobs(text);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_THAT(jobs->jobs, SizeIs(2));
  EXPECT_EQ(jobs->left_out, 12);
  EXPECT_THAT(jobs->jobs[0].ring, ElementsAre("s1", "s0"));
  EXPECT_EQ(jobs->jobs[1].id, "8");
  EXPECT_EQ(jobs->jobs[1].exit_code, 3);
  EXPECT_TRUE(jobs->jobs[1].ended());
  EXPECT_THAT(jobs->jobs[1].ring, SizeIs(0));
}

TEST(JobViewTest, WhatIsNoAnswerOfADaemonIsAnError) {
  for (const char* text : {"", "{", "[]", "{}", R"({"id": "7"})", "<html>"}) {
    EXPECT_FALSE(parse_job(text).ok()) << text;
  }
  EXPECT_FALSE(parse_jobs(R"({"jobs": [{"id": "7"}]})").ok());
  EXPECT_TRUE(parse_jobs(R"({"jobs": []})").ok());
}

TEST(JobViewTest, AQueueIsATableWithoutBlanksAtItsEnds) {
  JobView job;
  job.id = "12";
  job.name = "digits";
  job.owner = "ann";
  job.state = "queued";
  job.min_workers = 1;
  job.max_workers = 8;
  job.submitted_s = 100;
  EXPECT_EQ(queue_table({job}, 165),
            "id  name    owner  state   workers  time  where, or why\n"
            "12  digits  ann    queued  1:8      1:05\n");
  job.reason = "waits";
  EXPECT_THAT(queue_table({job}, 165), HasSubstr("1:05  waits\n"));
  job.reason = "";
  job.name = "\x1b[2Jé";
  job.ring = {"s1", "s0", "s1"};
  EXPECT_THAT(queue_table({job}, 165), HasSubstr("12  ?[2Jé  ann")) << "a name does not move the cursor";
  EXPECT_THAT(queue_table({job}, 165), HasSubstr("1:05  s1 x2, s0\n"));
}

}  // namespace
}  // namespace maypole::cli
