// SPDX-License-Identifier: Apache-2.0
// Philly and Tiresias; ITP is in workload_test.cc, Pollux in pollux_trace_test.cc.
#include "maypole/formats/reading_testing.h"
#include "maypole/formats/workload.h"

#include <algorithm>
#include <map>

namespace maypole::formats {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Workload> philly(std::string_view rows, const WorkloadOptions& options = {}) {
  return parse_workload("timestamp,duration,num_gpus,gpu_time,cluster\n" + std::string(rows), "philly.csv", options, plain_cluster(4));
}

absl::StatusOr<Workload> tiresias(std::string_view rows, const WorkloadOptions& options = {}) {
  return parse_workload("job_id,num_gpu,submit_time,iterations,model_name,duration,interval\r\n" + std::string(rows), "60.csv", options,
                        plain_cluster(4));
}

TEST(TraceTest, APhillyRowIsItsGpusForItsDurationAtItsLocalTime) {
  const auto workload = philly("2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-08 23:59:59,2951.5,4,11806.0,6214e9\n", {.slot_s = 300});
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->jobs.size(), 2U);
  EXPECT_EQ(workload->jobs[0].id, "row-2") << "sorted; rows have no names";
  EXPECT_EQ(workload->jobs[0].work, 2951.5 * 4);
  EXPECT_EQ(workload->jobs[0].workers, 4);
  EXPECT_EQ(workload->jobs[1].arrival_s, 7 * 3600 + 1 * 60 + 55 + 1) << "across midnight";
  EXPECT_THAT(workload->filling, HasSubstr("sorted"));
  EXPECT_THAT(workload->filling, HasSubstr("Philly"));
}

TEST(TraceTest, PhillyTimesAreRefusedWhereTheyAreNone) {
  for (const std::string wrong : {"2017-13-09 07:01:55", "2017-02-30 07:01:55", "2017-10-09 24:01:55", "2017-10-09 07:61:55", "2017-10-09",
                                  "1507532515", "2017/10/09 07:01:55", "2017-10-09 07:01:5x", "2017-10--9 07:01:55", ""}) {
    EXPECT_THAT(philly(wrong + ",66,1,66,x\n"),
                FailsWith("philly.csv:2: timestamp: '" + wrong + "' is no time: write it as 2017-10-09 07:01:55"));
  }
  EXPECT_TRUE(philly("2016-02-29T07:01:55,66,1,66,x\n").ok());
}

TEST(TraceTest, ATiresiasRowIsItsGpusForItsDuration) {
  const auto workload = tiresias("0,1,5,606,vgg19,164,30\r\n1,8,30,133,vgg11,147,23\r\n", {.elastic = true});
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->format, WorkloadFormat::kTiresias);
  EXPECT_EQ(workload->jobs[1].arrival_s, 25);
  EXPECT_EQ(workload->jobs[1].work, 8 * 147);
  EXPECT_EQ(workload->jobs[1].max_workers, 16);
  EXPECT_THAT(tiresias("0,1,5,606,vgg19,,30\r\n"), FailsWith("60.csv:2: duration: '' is not a finite number above 0"));
  EXPECT_THAT(tiresias("0,1,-5,606,vgg19,1,30\r\n"), FailsWith("60.csv:2: submit_time: '-5' is not a finite number of at least 0"));
}

TEST(TraceTest, DeadlinesComeFromTheTraceWhereItHasThem) {
  const std::string text =
      "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\na,100,5,bert,460,32,2,60\nb,160,5,bert,300,32,"
      "1,60\n";
  const model::Utility deadline{.kind = model::UtilityKind::kDeadline, .late = 0.5};
  const auto workload = parse_workload(text, "elasticflow.csv", {.utility = deadline}, plain_cluster(1));
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->jobs[0].utility.deadline_s, 360) << "counted from the first arrival, as all times";
  EXPECT_EQ(workload->jobs[1].utility.deadline_s, 200);
  EXPECT_EQ(workload->jobs[0].utility.work, 120);
  EXPECT_EQ(workload->jobs[0].value(120), 1);
  EXPECT_EQ(workload->jobs[0].value(120, 60), 0.75);
}

TEST(TraceTest, ThePhillyTraceHoldsTheJobsThatItIsSaidToHold) {
  MAYPOLE_NEED_TRACE("pollux-osdi21/philly-all-jobs.csv.gz");
  const auto workload = read_workload(traces() + "/pollux-osdi21/philly-all-jobs.csv.gz", {}, plain_cluster(16));
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->jobs.size(), 82247U);
  EXPECT_TRUE(std::ranges::is_sorted(workload->jobs, {}, &model::Job::arrival_s));
  std::vector<double> durations;
  std::map<int, int> by_gpus;
  double gpu_time = 0;
  double multi_gpu_time = 0;
  for (const model::Job& job : workload->jobs) {
    durations.push_back(*job.work / job.workers);
    ++by_gpus[job.workers];
    gpu_time += *job.work;
    multi_gpu_time += job.workers > 1 ? *job.work : 0;
  }
  std::ranges::sort(durations);
  EXPECT_EQ(durations[durations.size() / 2], 1144);
  EXPECT_EQ(durations.back(), 4628226);
  EXPECT_NEAR(by_gpus[1] / 82247.0, 0.932, 5e-4);
  EXPECT_NEAR(multi_gpu_time / gpu_time, 0.82, 5e-3);
  EXPECT_EQ(by_gpus.rbegin()->first, 128);
  EXPECT_NEAR(82247 / (workload->jobs.back().arrival_s / 3600), 31.5, 0.05) << "jobs an hour";
  const auto suggested = suggest_cluster(traces() + "/pollux-osdi21/philly-all-jobs.csv.gz");
  ASSERT_TRUE(suggested.ok()) << suggested.status();
  EXPECT_GE(suggested->cluster.num_servers(), 16U) << "the largest job, of 128 GPUs, fits";
}

TEST(TraceTest, TheOtherRealTracesLoad) {
  MAYPOLE_NEED_TRACE("tiresias/60_job.csv");
  const auto sixty = read_workload(traces() + "/tiresias/60_job.csv", {}, plain_cluster(4));
  ASSERT_TRUE(sixty.ok()) << sixty.status();
  EXPECT_EQ(sixty->jobs.size(), 60U);
  for (const auto& [name, jobs] :
       {std::pair("cluster01", 1595U), std::pair("cluster05", 3629U), std::pair("cluster10", 260U), std::pair("195job", 195U)}) {
    const auto elasticflow = read_workload(traces() + "/microsoft-itp-elasticflow/elasticflow/" + name + ".csv", {}, plain_cluster(8));
    ASSERT_TRUE(elasticflow.ok()) << elasticflow.status();
    EXPECT_EQ(elasticflow->jobs.size(), jobs);
  }
  EXPECT_THAT(read_workload(traces() + "/tiresias/yarn-gput1000.csv", {}, plain_cluster(1)),
              FailsWith("yarn-gput1000.csv:1: no workload format has the columns duration"));
}

}  // namespace
}  // namespace maypole::formats
