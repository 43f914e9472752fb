// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/job_file.h"

#include "maypole/formats/reading_testing.h"
#include "maypole/formats/text_file.h"

#include <fmt/format.h>

namespace maypole::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr std::string_view kJob = R"(version: 1
name: digits
command: [python3, train.py, --epochs, 3]
workers: 2
min_workers: 1
max_workers: 8
per_worker: {gpu: 1, cpu: 2.5, memory: 4GB}
edge_bandwidth: 1Gbps
utility: {kind: sigmoid, weight: 3, sensitivity: 0.5, expected: 300}
env: {OMP_NUM_THREADS: "1", EMPTY: }
chdir: /srv/digits
time_limit: 2h
retries: 4
racks: 1@10min
)";

absl::StatusOr<JobFile> reading(std::string_view from, std::string_view to) {
  std::string text(kJob);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse_job_file(text.replace(at, from.size(), to), "job.yaml");
}

TEST(JobFileTest, ReadsEveryFieldIntoItsPlace) {
  const auto read = parse_job_file(kJob, "job.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->name, "digits");
  EXPECT_THAT(read->command, ElementsAre("python3", "train.py", "--epochs", "3"));
  EXPECT_EQ(read->job.workers, 2);
  EXPECT_EQ(read->job.min_workers, 1);
  EXPECT_EQ(read->job.max_workers, 8);
  EXPECT_THAT(read->per_worker, ElementsAre(Pair("gpu", 1), Pair("cpu", 2.5), Pair("memory", 4e9)));
  EXPECT_EQ(read->job.edge_bandwidth.bytes_per_second, 1e9 / 8 * 0.95);
  EXPECT_EQ(read->job.utility.kind, model::UtilityKind::kSigmoid);
  EXPECT_EQ(read->job.utility.expected, 300);
  EXPECT_EQ(read->job.weight, 3);
  EXPECT_THAT(read->env, ElementsAre(Pair("OMP_NUM_THREADS", "1"), Pair("EMPTY", "")));
  EXPECT_EQ(read->chdir, "/srv/digits");
  EXPECT_EQ(read->time_limit_s, 7200);
  EXPECT_EQ(read->retries, 4);
  EXPECT_EQ(read->job.max_racks, 1);
  EXPECT_EQ(read->job.max_racks_s, 600);
}

constexpr std::string_view kProgress =
    R"({"kind": "profile", "bandwidth": 1e8, "local_bandwidth": null, "iterations": [{"workers": 1, "spread": false, "s_per_byte": 0, "iteration_s": 2}]})";

TEST(JobFileTest, AProgressModelIsInTheFileOrBesideIt) {
  const std::string inlined = fmt::format("version: 1\ncommand: [true]\nprogress: {}\n", kProgress);
  EXPECT_EQ(parse_job_file(inlined, "job.yaml")->job.progress.iteration_s({1, 1, {}}), 2);

  const std::string folder = ::testing::TempDir();
  ASSERT_TRUE(write_text_file(folder + "/job_file_test_progress.json", kProgress).ok());
  const std::string named = "version: 1\ncommand: [true]\nprogress: job_file_test_progress.json\n";
  ASSERT_TRUE(write_text_file(folder + "/job_file_test.yaml", named).ok());
  const auto read = read_job_file(folder + "/job_file_test.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->job.progress.kind, model::ProgressKind::kProfile);
  EXPECT_THAT(parse_job_file("version: 1\ncommand: [true]\nprogress: none.json\n", "job.yaml", folder),
              FailsWith(fmt::format("job.yaml:3: progress: {}/none.json: cannot be opened", folder)));
  EXPECT_THAT(
      parse_job_file(named, "job.yaml"),
      FailsWith("job.yaml:3: progress: a file such as 'job_file_test_progress.json' is read only where this text is a file itself"));
  EXPECT_THAT(parse_job_file("version: 1\ncommand: [true]\nprogress: {kind: constant}\n", "job.yaml"),
              FailsWith("job.yaml:3: progress.zeta: is missing"));
}

TEST(JobFileTest, OnlyVersionAndCommandAreNeeded) {
  const auto read = parse_job_file("version: 1\ncommand: [true]\n", "job.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->job.min_workers, 1);
  EXPECT_EQ(read->job.max_workers, 1);
  EXPECT_FALSE(read->job.edge_bandwidth.limited());
  EXPECT_EQ(read->time_limit_s, std::nullopt);
  EXPECT_EQ(read->job.max_racks, 0);
  EXPECT_TRUE(read->per_worker.empty());
}

TEST(JobFileTest, WorkersStandForTheRangeThatIsNotGiven) {
  const auto workers = parse_job_file("version: 1\ncommand: [true]\nworkers: 4\nmax_workers: 6\n", "job.yaml");
  EXPECT_EQ(workers->job.min_workers, 4);
  EXPECT_EQ(workers->job.max_workers, 6);
  const auto least = parse_job_file("version: 1\ncommand: [true]\nmin_workers: 2\n", "job.yaml");
  EXPECT_EQ(least->job.workers, 2);
}

TEST(JobFileTest, NamesTheFileLineAndFieldOfWhatIsWrong) {
  EXPECT_THAT(reading("version: 1\n", ""), FailsWith("job.yaml:1: version: is missing"));
  EXPECT_THAT(reading("version: 1", "version: 3"), FailsWith("job.yaml:1: version: this program reads version 1, the file has 3"));
  EXPECT_THAT(reading("[python3, train.py, --epochs, 3]", "python3 train.py"),
              FailsWith("job.yaml:3: command: 'python3 train.py' is a word: give a list"));
  EXPECT_THAT(reading("[python3, train.py, --epochs, 3]", "[]"),
              FailsWith("job.yaml:3: command: is empty: give the program and its arguments"));
  EXPECT_THAT(reading("workers: 2", "workers: two"), FailsWith("job.yaml:4: workers: 'two' is not a whole number from 1"));
  EXPECT_THAT(reading("min_workers: 1", "min_workers: 3"), FailsWith("job.yaml:5: min_workers: 3 is more than workers, 2"));
  EXPECT_THAT(reading("max_workers: 8", "max_workers: 1"), FailsWith("job.yaml:6: max_workers: 1 is less than workers, 2"));
  EXPECT_THAT(reading("memory: 4GB", "memory: 4 giga"), FailsWith("job.yaml:7: per_worker.memory: '4 giga' is no amount"));
  EXPECT_THAT(reading("edge_bandwidth: 1Gbps", "edge_bandwidth: fast"), FailsWith("job.yaml:8: edge_bandwidth: 'fast' is not a bandwidth"));
  EXPECT_THAT(reading("kind: sigmoid", "kind: sigma"), FailsWith("job.yaml:9: utility.kind: there is no kind 'sigma'"));
  EXPECT_THAT(reading(", expected: 300", ""), FailsWith("job.yaml:9: utility.expected: is missing"));
  EXPECT_THAT(reading("time_limit: 2h", "time_limit: soon"), FailsWith("job.yaml:12: time_limit: 'soon' is not a duration"));
  EXPECT_THAT(reading("time_limit: 2h", "time_limit: 0"), FailsWith("job.yaml:12: time_limit: must be above 0"));
  EXPECT_THAT(reading("retries: 4", "retries: -1"), FailsWith("job.yaml:13: retries: '-1' is not a whole number from 0"));
  EXPECT_THAT(reading("racks: 1@10min", "racks: 1@"), FailsWith("job.yaml:14: racks: '' is not a duration"));
  EXPECT_THAT(reading("racks: 1@10min", "racks: some"), FailsWith("job.yaml:14: racks: 'some' is no limit of racks"));
  EXPECT_THAT(reading("racks: 1@10min", "racks: 1@0s"), FailsWith("job.yaml:14: racks: '1@0s' holds for no time"));
  EXPECT_THAT(reading("retries: 4", "retires: 4"), FailsWith("job.yaml:13: retires: is no field of this format"));
  EXPECT_THAT(reading("EMPTY:", "\"A=B\":"), FailsWith("job.yaml:10: env.A=B: 'A=B' is no name of a variable"));
  EXPECT_THAT(parse_job_file("- a\n", "job.yaml"), FailsWith("job.yaml:1: is a list: give a map"));
  EXPECT_THAT(parse_job_file("a: [", "job.yaml"), FailsWith("job.yaml:1: end of sequence flow not found"));
}

TEST(JobFileTest, DemandIsByTheClustersResources) {
  const model::Cluster cluster = plain_cluster(1);
  EXPECT_EQ(demand_on(cluster, {{"gpu", 2}}).value()[model::ResourceId(0)], 2);
  EXPECT_THAT(demand_on(cluster, {{"gpu", 2}, {"fpga", 1}}), FailsWith("per_worker.fpga: no server has any 'fpga': give one of gpu"));
}

TEST(JobFileTest, AUtilityCanBeAWordOrAMap) {
  EXPECT_EQ(parse_utility("log")->utility.kind, model::UtilityKind::kLog);
  const auto sigmoid = parse_utility("{kind: sigmoid, sensitivity: 0.5, expected: 300, weight: 2}");
  ASSERT_TRUE(sigmoid.ok()) << sigmoid.status();
  EXPECT_EQ(sigmoid->utility.sensitivity, 0.5);
  EXPECT_EQ(sigmoid->weight, 2);
  EXPECT_EQ(parse_utility("{kind: deadline, deadline_s: 2h}")->utility.deadline_s, 7200) << "its work is the job's";
  EXPECT_THAT(parse_utility("cube"), FailsWith("--utility: kind: there is no kind 'cube'"));
  EXPECT_THAT(parse_utility("sigmoid"), FailsWith("sensitivity: is missing"));
}

}  // namespace
}  // namespace maypole::formats
