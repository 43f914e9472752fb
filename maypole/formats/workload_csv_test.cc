// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/workload_csv.h"

#include "maypole/formats/reading_testing.h"
#include "maypole/formats/workload.h"

#include <fmt/format.h>

namespace maypole::formats {
namespace {

using ::testing::Contains;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kRows =
    "job_id,arrival_s,min_workers,workers,max_workers,gpus_per_worker,work,edge_bandwidth,utility,weight\n"
    "a,0.30000000000000004,1,2,4,2,3600,12500000,sqrt,3\n"
    "\"b, \"\"quoted\"\"\",1,1,1,1,1,,,log,0.1\n";

TEST(WorkloadCsvTest, OurOwnRowsComeBackAsTheyWere) {
  const model::Cluster cluster = plain_cluster(4);
  const auto workload = parse_workload(kRows, "w.csv", {.slot_s = 300}, cluster);
  ASSERT_TRUE(workload.ok()) << workload.status();
  const auto written = workload_csv(workload->jobs, cluster, 300);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->text, kRows);
  EXPECT_THAT(written->lost, IsEmpty());
}

TEST(WorkloadCsvTest, ARigidTraceIsTheSameJobsAfterwards) {
  const model::Cluster cluster = plain_cluster(4);
  const auto before = parse_workload("job_id,submission_time,duration,num_gpu\nx,100,3607,4\ny,161,61,1\n", "itp.csv", {}, cluster);
  ASSERT_TRUE(before.ok()) << before.status();
  const auto written = workload_csv(before->jobs, cluster, 60);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_THAT(written->lost, IsEmpty());
  const auto after = parse_workload(written->text, "w.csv", {}, cluster);
  ASSERT_TRUE(after.ok()) << after.status();
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after->jobs[i].id, before->jobs[i].id);
    EXPECT_EQ(after->jobs[i].arrival_s, before->jobs[i].arrival_s);
    EXPECT_EQ(after->jobs[i].work, before->jobs[i].work);
    EXPECT_EQ(after->jobs[i].weight, before->jobs[i].weight);
    EXPECT_EQ(after->jobs[i].progress, before->jobs[i].progress);
    EXPECT_EQ(after->jobs[i].utility, before->jobs[i].utility);
  }
}

TEST(WorkloadCsvTest, AnElasticTraceIsTheSameWhereItIsReadAsElastic) {
  const model::Cluster cluster = plain_cluster(4);
  const auto before = parse_workload("job_id,submission_time,duration,num_gpu\nx,100,3607,4\n", "itp.csv", {.elastic = true}, cluster);
  const auto written = workload_csv(before->jobs, cluster, 60);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_THAT(written->lost, ElementsAre(HasSubstr("the cost of a resize (a reader takes none, or with --elastic 30 s) of 1 jobs"),
                                         HasSubstr("the speed law 'power'")));
  const auto after = parse_workload(written->text, "w.csv", {.elastic = true}, cluster);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->jobs[0].progress, before->jobs[0].progress);
  EXPECT_EQ(after->jobs[0].work, before->jobs[0].work);
}

TEST(WorkloadCsvTest, WhatTheColumnsCannotHoldIsSaid) {
  model::ClusterParts parts;
  parts.resources = {"gpu", "cpu"};
  parts.servers = {{.id = "s0", .rack = model::RackId(), .capacity = model::Amounts(2, 64)}};
  const model::Cluster cluster = model::Cluster::make(std::move(parts)).value();
  model::Job job;
  job.id = "a";
  job.demand.assign(2, 1);
  job.utility = {.kind = model::UtilityKind::kSigmoid, .sensitivity = 1};
  job.budget = 5;
  job.max_racks = 1;
  const auto written = workload_csv(std::vector{job, job}, cluster, 60);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_THAT(written->lost, ElementsAre("the budget of 2 jobs", "the cpu per worker of 2 jobs", "the limit of racks of 2 jobs",
                                         "the parameters of the utility sigmoid (a reader gives utility and parameters by --utility) of 2 "
                                         "jobs",
                                         "the progress of a worker, as there is no work to count it by (a reader takes a second of work a "
                                         "second) of 2 jobs"));
  job.demand[model::ResourceId(0)] = 0;
  EXPECT_THAT(workload_csv(std::vector{job}, cluster, 60), FailsWith("job 'a' needs no gpu: the column gpus_per_worker cannot hold that"));
}

TEST(WorkloadCsvTest, MeasuredSpeedsBecomeWorkerSecondsAtTheJobsOwnCount) {
  const model::Cluster cluster = plain_cluster(4, 4);
  model::Job job;
  job.id = "a";
  job.min_workers = job.workers = job.max_workers = 8;
  job.demand.assign(1, 1);
  job.work = 6000;
  job.progress = {.kind = model::ProgressKind::kTable, .points = {{4, 1, 10}, {8, 2, 15}}};
  const auto written = workload_csv(std::vector{job}, cluster, 60);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_THAT(written->lost, Contains(HasSubstr("the speed law 'table'")));
  const auto after = parse_workload(written->text, "w.csv", {}, cluster);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(*after->jobs[0].work / after->jobs[0].progress.per_slot({8, 2, {}}, 60), DoubleEq(6000 / 15.0 / 60)) << "as many slots";
  EXPECT_THAT(after->jobs[0].value(*after->jobs[0].work), DoubleEq(job.value(6000))) << "and worth the same at its end";
}

TEST(WorkloadCsvTest, JobsOfPolluxStayWorthTheSameWhenTheyAreFinished) {
  MAYPOLE_NEED_TRACE("pollux-osdi21/workloads/workload-1.csv");
  const model::Cluster cluster = plain_cluster(16, 4);
  const auto before = read_workload(traces() + "/pollux-osdi21/workloads/workload-1.csv", {}, cluster);
  ASSERT_TRUE(before.ok()) << before.status();
  const auto written = workload_csv(before->jobs, cluster, 60);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto after = parse_workload(written->text, "w.csv", {}, cluster);
  ASSERT_TRUE(after.ok()) << after.status();
  for (const model::Job& job : after->jobs) {
    EXPECT_NEAR(job.value(*job.work), 1, 1e-9) << job.id;
  }
}

TEST(WorkloadCsvTest, AWholeRealTraceSurvives) {
  MAYPOLE_NEED_TRACE("microsoft-itp-elasticflow/raw/cluster04.csv");
  const model::Cluster cluster = plain_cluster(80);
  const auto before = read_workload(traces() + "/microsoft-itp-elasticflow/raw/cluster04.csv", {}, cluster);
  ASSERT_TRUE(before.ok()) << before.status();
  const auto written = workload_csv(before->jobs, cluster, 60);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto after = parse_workload(written->text, "w.csv", {}, cluster);
  ASSERT_TRUE(after.ok()) << after.status();
  ASSERT_EQ(after->jobs.size(), 15802U);
  for (std::size_t i = 0; i < after->jobs.size(); ++i) {
    ASSERT_EQ(after->jobs[i].work, before->jobs[i].work);
    ASSERT_EQ(after->jobs[i].weight, before->jobs[i].weight);
    ASSERT_EQ(after->jobs[i].arrival_s, before->jobs[i].arrival_s);
  }
}

}  // namespace
}  // namespace maypole::formats
