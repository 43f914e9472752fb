// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/workload.h"

#include "maypole/formats/reading_testing.h"
#include "maypole/formats/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace maypole::formats {
namespace {

using ::testing::DoubleEq;
using ::testing::HasSubstr;

constexpr std::string_view kOurHeader =
    "job_id,arrival_s,min_workers,workers,max_workers,gpus_per_worker,work,edge_bandwidth,utility,weight\n";

absl::StatusOr<Workload> ours(std::string_view rows, const WorkloadOptions& options = {}) {
  return parse_workload(std::string(kOurHeader) + std::string(rows), "w.csv", options, plain_cluster(4));
}

absl::StatusOr<Workload> itp(std::string_view rows, const WorkloadOptions& options = {}) {
  return parse_workload("job_id,submission_time,duration,num_gpu\n" + std::string(rows), "itp.csv", options, plain_cluster(4));
}

TEST(WorkloadTest, OurCsvHoldsOneJobARow) {
  const auto workload = ours("a,30,1,2,4,2,3600,12500000,sqrt,3\nb,0.5,1,1,1,1,,,,\n", {.slot_s = 300});
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->jobs.size(), 2U);
  const model::Job& last = workload->jobs[1];  // by arrival
  EXPECT_EQ(last.id, "a");
  EXPECT_EQ(last.arrival_s, 30);
  EXPECT_EQ(last.min_workers, 1);
  EXPECT_EQ(last.workers, 2);
  EXPECT_EQ(last.max_workers, 4);
  EXPECT_EQ(last.demand[model::ResourceId(0)], 2);
  EXPECT_EQ(last.work, 3600);
  EXPECT_EQ(last.edge_bandwidth.bytes_per_second, 12500000);
  EXPECT_EQ(last.utility.kind, model::UtilityKind::kSqrt);
  EXPECT_EQ(last.weight, 3);
  EXPECT_EQ(last.progress.per_slot({2, 1, {}}, 300), 600) << "worker-seconds";
  const model::Job& first = workload->jobs[0];
  EXPECT_EQ(first.work, std::nullopt);
  EXPECT_FALSE(first.edge_bandwidth.limited());
  EXPECT_EQ(first.utility.kind, model::UtilityKind::kLinear);
  EXPECT_EQ(first.weight, 1);
  EXPECT_EQ(first.arrival_s, 0.5) << "our own times are never shifted";
  EXPECT_THAT(workload->filling, HasSubstr("sorted"));
}

TEST(WorkloadTest, AJobMayHaveAProgressModelInAFileOfItsOwn) {
  const std::string folder = ::testing::TempDir();
  ASSERT_TRUE(write_text_file(folder + "/workload_test_progress.json",
                              R"({"kind": "profile", "bandwidth": null, "local_bandwidth": null, "iterations": [
                                  {"workers": 1, "spread": false, "s_per_byte": 0, "iteration_s": 2}]})")
                  .ok());
  const auto with = [&](std::string_view file) {
    const std::string header(kOurHeader.substr(0, kOurHeader.size() - 1));
    return parse_workload(fmt::format("{},progress\na,0,1,1,1,1,30,,,,{}\nb,0,1,1,1,1,60,,,,\n", header, file), "w.csv", {.folder = folder},
                          plain_cluster(4));
  };
  const auto workload = with("workload_test_progress.json");
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->jobs[0].progress.per_slot({1, 1, {}}, 60), 30) << "iterations of 2 s";
  EXPECT_EQ(workload->jobs[0].work, 30);
  EXPECT_EQ(workload->jobs[1].progress.kind, model::ProgressKind::kConstant);
  EXPECT_THAT(workload->filling, HasSubstr("where a progress model is given in its unit"));
  EXPECT_THAT(with("none.json"), FailsWith(fmt::format("w.csv:2: progress: {}/none.json: cannot be opened", folder)));
}

TEST(WorkloadTest, AUtilityGivenByOptionStandsInPlaceOfTheColumn) {
  const std::string rows = "a,0,1,1,1,1,3600,,sigmoid,3\nb,0,1,1,1,1,60,,linear,\n";
  const model::Utility sigmoid{.kind = model::UtilityKind::kSigmoid, .sensitivity = 0.5, .expected = 10};
  const auto workload = ours(rows, {.utility = sigmoid, .weight = 7});
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->jobs[0].utility, sigmoid);
  EXPECT_EQ(workload->jobs[1].utility, sigmoid);
  EXPECT_EQ(workload->jobs[0].weight, 3);
  EXPECT_EQ(workload->jobs[1].weight, 7);
  EXPECT_THAT(ours("a,0,1,1,1,1,1,,cube,\n", {.utility = sigmoid}), FailsWith("w.csv:2: utility: there is no kind 'cube'"));
  const auto deadline = ours(rows, {.utility = model::Utility{.kind = model::UtilityKind::kDeadline, .deadline_s = 100, .work = 1}});
  ASSERT_TRUE(deadline.ok()) << deadline.status();
  EXPECT_EQ(deadline->jobs[0].utility.work, 3600);
}

TEST(WorkloadTest, ADeadlineOfAnOptionCountsFromTheFirstArrivalAndOneOfTheTraceInItsOwnTime) {
  const model::Utility deadline{.kind = model::UtilityKind::kDeadline, .deadline_s = 500, .work = 1};
  const auto by_option = itp("a,1000,3600,4\n", {.utility = deadline});
  ASSERT_TRUE(by_option.ok()) << by_option.status();
  EXPECT_EQ(by_option->jobs[0].utility.deadline_s, 500);
  const auto by_trace = parse_workload("job_id,submission_time,duration,num_gpu,deadline\na,1000,3600,4,1700\n", "itp.csv",
                                       {.utility = deadline}, plain_cluster(4));
  ASSERT_TRUE(by_trace.ok()) << by_trace.status();
  EXPECT_EQ(by_trace->jobs[0].utility.deadline_s, 700);
}

TEST(WorkloadTest, TakesWhatSpreadsheetsMakeOfAFile) {
  const std::string quoted = "\xEF\xBB\xBF\"job_id\", submission_time ,duration,num_gpu\r\n\r\n\"a, \"\"the\"\" job\",5, 60 ,1\r\n";
  const auto workload = parse_workload(quoted, "itp.csv", {}, plain_cluster(1));
  ASSERT_FALSE(workload.ok()) << "the mark is taken off where the file is read";
  const auto decoded = parse_workload(quoted.substr(3), "itp.csv", {}, plain_cluster(1));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->jobs[0].id, "a, \"the\" job");
}

TEST(WorkloadTest, WholeNumbersMayBeWrittenAsADataFrameDoes) {
  const auto workload = itp("a,100.0,3600.0,4.0\n");
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->jobs[0].workers, 4);
}

TEST(WorkloadTest, NamesTheFileLineAndColumnOfAWrongField) {
  EXPECT_THAT(ours("a,-1,1,1,1,1,1,,,\n"), FailsWith("w.csv:2: arrival_s: '-1' is not a finite number of at least 0"));
  EXPECT_THAT(ours("a,nan,1,1,1,1,1,,,\n"), FailsWith("w.csv:2: arrival_s: 'nan' is not a finite number of at least 0"));
  EXPECT_THAT(ours("a,0,0,1,1,1,1,,,\n"), FailsWith("w.csv:2: min_workers: '0' is not a whole number of at least 1"));
  EXPECT_THAT(ours("a,0,1,1.5,2,1,1,,,\n"), FailsWith("w.csv:2: workers: '1.5' is not a whole number of at least 1"));
  EXPECT_THAT(ours("a,0,1,1,,1,1,,,\n"), FailsWith("w.csv:2: max_workers: '' is not a whole number of at least 1"));
  EXPECT_THAT(ours("a,0,1,1,1,0,1,,,\n"), FailsWith("w.csv:2: gpus_per_worker: '0' is not a finite number above 0"));
  EXPECT_THAT(ours("a,0,1,1,1,1,0,,,\n"), FailsWith("w.csv:2: work: '0' is not a finite number above 0"));
  EXPECT_THAT(ours("a,0,1,1,1,1,1,1Gbps,,\n"), FailsWith("w.csv:2: edge_bandwidth: '1Gbps' is not a finite number of at least 0"));
  EXPECT_THAT(ours("a,0,1,1,1,1,1,,cube,\n"), FailsWith("w.csv:2: utility: there is no kind 'cube'"));
  EXPECT_THAT(ours("a,0,1,1,1,1,1,,sigmoid,\n"), FailsWith("w.csv:2: utility: 'sigmoid' has parameters, which no column holds"));
  EXPECT_THAT(ours("a,0,1,1,1,1,1,,,-2\n"), FailsWith("w.csv:2: weight: '-2' is not a finite number of at least 0"));
  EXPECT_THAT(ours(",0,1,1,1,1,1,,,\n"), FailsWith("w.csv:2: job_id: is empty: give a name"));
  EXPECT_THAT(ours("a,0,1,1,1,1,1,,,\n\na,1,1,1,1,1,1,,,\n"),
              FailsWith("w.csv:4: the job 'a' is there twice (first in line 2): give each its own name"));
  EXPECT_THAT(ours("a,0,3,2,4,1,1,,,\n"), FailsWith("w.csv:2: job 'a' has min_workers 3, workers 2, max_workers 4"));
  EXPECT_THAT(ours("a,0,33,33,33,1,1,,,\n"),
              FailsWith("w.csv:2: job 'a' can never run: it needs at least 33 workers, the empty cluster holds 32"));
  EXPECT_THAT(ours("a,0,1,1,1,9,1,,,\n"), FailsWith("w.csv:2: job 'a' can never run: each worker needs 9 gpu, the largest server has 8"));
  EXPECT_THAT(ours("a,0,1,1,1,1,1,,\n"), FailsWith("w.csv:2: the row has 9 fields, the header 10"));
  EXPECT_THAT(ours("a,0,1,1,1,1,1,,,,\n"), FailsWith("w.csv:2: the row has 11 fields, the header 10"));
  EXPECT_THAT(ours("a\"b\",0,1,1,1,1,1,,,\n"), FailsWith("w.csv:2: a quote inside a field"));
  EXPECT_THAT(ours("a,0,1,1,1,1,1,,,\n\"b,0,1,1,1,1,1,,,\n"), FailsWith("w.csv:3: a quote that never ends"));
  EXPECT_THAT(ours("\"a\"b,0,1,1,1,1,1,,,\n"), FailsWith("w.csv:2: text after a closing quote"));
  EXPECT_THAT(ours(""), FailsWith("w.csv: has no job below its header"));
}

TEST(WorkloadTest, GpusAreNotTakenForWhateverResourceComesFirst) {
  model::ClusterParts parts;
  parts.resources = {"cpu", "memory"};
  parts.servers.push_back({"s0", {}, {}});
  parts.servers.back().capacity.assign(2, 8);
  const model::Cluster without = model::Cluster::make(parts).value();
  EXPECT_THAT(parse_workload(std::string(kOurHeader) + "a,0,1,1,1,1,1,,,\n", "w.csv", {}, without),
              FailsWith("w.csv: its jobs count GPUs, and no server of the cluster has any 'gpu'"));
}

TEST(WorkloadTest, AnUnknownHeaderIsNamedWithTheOneWeRead) {
  const model::Cluster cluster = plain_cluster(1);
  const auto reading = [&](std::string_view text) { return parse_workload(text, "w.csv", {}, cluster); };
  EXPECT_THAT(reading(""), FailsWith("w.csv: is empty: the first line names the columns"));
  EXPECT_THAT(reading("a,b\n1,2\n"), FailsWith("w.csv:1: no workload format has the columns a, b: ours has job_id,arrival_s,"));
  EXPECT_THAT(
      reading("job_id,arrival_s,workers\n"),
      FailsWith("w.csv:1: the columns min_workers, max_workers, gpus_per_worker, work, edge_bandwidth, utility, weight are missing"));
  EXPECT_THAT(reading(std::string(kOurHeader.substr(0, kOurHeader.size() - 1)) + ",colour\na,0,1,1,1,1,1,,,,red\n"),
              FailsWith("w.csv:1: colour: is no column of our workload: it has job_id,arrival_s,"));
  EXPECT_THAT(reading("a,b,a\n1,2,3\n"), FailsWith("w.csv:1: the column 'a' is there twice"));
  EXPECT_THAT(reading("num_switch,num_node_p_switch,num_gpu_p_node\n1,1,4\n"), FailsWith("w.csv:1: is a cluster: give it as --cluster"));
  EXPECT_THAT(reading("{\"version\": 1}"), FailsWith("w.csv: is JSON: a workload is CSV"));
}

TEST(WorkloadTest, AMicrosoftJobIsItsGpusForItsDuration) {
  const auto rigid = itp("a,1000,3600,4\nb,1060,60,1\n", {.slot_s = 300});
  ASSERT_TRUE(rigid.ok()) << rigid.status();
  const model::Job& job = rigid->jobs[0];
  EXPECT_EQ(job.arrival_s, 0) << "times count from the first arrival";
  EXPECT_EQ(rigid->jobs[1].arrival_s, 60);
  EXPECT_EQ(job.min_workers, 4);
  EXPECT_EQ(job.max_workers, 4);
  EXPECT_EQ(job.work, 4 * 3600);
  // At the trace's count it ends after the trace's duration: 12 slots of 300 s.
  EXPECT_EQ(*job.work / job.progress.per_slot({4, 1, {}}, 300), 12);
  EXPECT_EQ(job.progress.resize_s, 0);
  EXPECT_THAT(job.value(*job.work), DoubleEq(1)) << "each finished job is worth the same";
  EXPECT_THAT(rigid->jobs[1].value(*rigid->jobs[1].work), DoubleEq(1));
  EXPECT_THAT(rigid->filling, HasSubstr("times count from the first arrival (1000 in the file)"));
}

TEST(WorkloadTest, AnElasticJobGrowsToTwiceItsGpusAtAFallingGain) {
  const auto elastic = itp("a,0,3600,4\n", {.elastic = true, .slot_s = 300});
  ASSERT_TRUE(elastic.ok()) << elastic.status();
  const model::Job& job = elastic->jobs[0];
  EXPECT_EQ(job.min_workers, 1);
  EXPECT_EQ(job.workers, 4);
  EXPECT_EQ(job.max_workers, 8);
  const auto speed = [&](int workers) { return job.progress.per_slot({workers, 1, {}}, 300); };
  EXPECT_EQ(*job.work / speed(4), 12);
  EXPECT_THAT(speed(8) / speed(4), DoubleEq(std::pow(2, 0.8)));
  EXPECT_EQ(job.progress.resize_s, 30);
}

TEST(WorkloadTest, TimesInMillisecondsAreNoticed) {
  EXPECT_THAT(
      itp("a,0,3600000,1\nb,1,7200000,1\nc,2,60000,1\n"),
      FailsWith("itp.csv:2: duration: 3.6e+06 s is 42 days, and half of the jobs last longer: are these milliseconds? Give seconds"));
  EXPECT_THAT(itp("a,0,1,1\nb,1,1,1\nc,2,4e8,1\n"), FailsWith("itp.csv:4: duration: 4e+08 s is 4630 days: are these milliseconds?"));
  EXPECT_THAT(itp("a,0,1,1\nb,1600000000,1,1\n"), FailsWith("itp.csv:3: arrives 18519 days after the first job: are these milliseconds?"));
  EXPECT_THAT(itp("a,0,0,1\n"), FailsWith("itp.csv:2: duration: '0' is not a finite number above 0"));
  EXPECT_THAT(itp("a,0,-5,1\n"), FailsWith("itp.csv:2: duration: '-5' is not a finite number above 0"));
  EXPECT_THAT(itp("a,0,,1\n"), FailsWith("itp.csv:2: duration: '' is not a finite number above 0"));
  EXPECT_THAT(itp("a,0,5,2e9\n", {.elastic = true}), FailsWith("itp.csv:2: job 'a' has max_workers 2147483647: give at most 100000"));
  EXPECT_THAT(itp("a,0,5,3e9\n"), FailsWith("itp.csv:2: num_gpu: '3e9' is not a whole number of at least 1"));
  EXPECT_THAT(itp("a,0,5,0\n"), FailsWith("itp.csv:2: num_gpu: '0' is not a whole number of at least 1"));
}

TEST(WorkloadTest, OnlyTheFirstJobsAreTakenWhereAsked) {
  const auto workload = itp("b,9,60,1\na,5,60,1\nc,20,60,64\n", {.most_jobs = 2});
  ASSERT_TRUE(workload.ok()) << "the third, which fits nowhere, is left out: " << workload.status();
  EXPECT_EQ(workload->jobs[0].id, "a");
  EXPECT_EQ(workload->jobs[1].id, "b");
  EXPECT_THAT(workload->filling, HasSubstr("the first 2 of 3 jobs"));
}

TEST(WorkloadTest, TheTenMicrosoftClustersHoldTheJobsThatTheyAreSaidToHold) {
  MAYPOLE_NEED_TRACE("microsoft-itp-elasticflow/raw/cluster01.csv");
  std::size_t jobs = 0;
  double gpu_hours = 0;
  const std::vector<double> demands = {28, 86, 140, 495, 10, 87, 257, 66, 31, 5};
  for (int cluster = 1; cluster <= 10; ++cluster) {
    const std::string path = fmt::format("{}/microsoft-itp-elasticflow/raw/cluster{:02}.csv", traces(), cluster);
    const auto suggested = suggest_cluster(path);
    ASSERT_TRUE(suggested.ok()) << suggested.status();
    EXPECT_EQ(std::round(suggested->mean_demand), demands[cluster - 1]);
    const double servers = std::ceil(std::max(64.0, suggested->mean_demand / 0.8) / 8);
    EXPECT_EQ(suggested->cluster.num_servers(), servers);
    const auto workload = read_workload(path, {.slot_s = 300}, suggested->cluster);
    ASSERT_TRUE(workload.ok()) << workload.status();
    EXPECT_EQ(workload->format, WorkloadFormat::kItp);
    jobs += workload->jobs.size();
    for (const model::Job& job : workload->jobs) {
      gpu_hours += *job.work / 3600;
    }
  }
  EXPECT_EQ(jobs, 69351U);
  EXPECT_EQ(std::round(gpu_hours), 1632720);
}

}  // namespace
}  // namespace maypole::formats
