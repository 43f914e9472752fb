// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/pollux_measurements.h"
#include "maypole/formats/reading_testing.h"
#include "maypole/formats/text_file.h"
#include "maypole/formats/workload.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

namespace maypole::formats {
namespace {

using ::testing::DoubleEq;
using ::testing::HasSubstr;

constexpr std::string_view kPlacements =
    "placement,local_bsz,step_time,sync_time\n1,10,1,0\n1,20,2,0\n2,10,1.5,0.5\n2,20,2.5,0.5\n11,10,2,1\n11,20,3,1\n"
    "22,10,3,2\n22,20,4,2\n13,10,5,2\n13,20,6,2\n";

// A folder measured/app with two batches, and a workload in a folder beside it.
class PolluxTraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/pollux";
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/measured/app");
    std::filesystem::create_directories(root_ + "/workloads");
    put("measured/app/placements.csv", kPlacements);
    put("measured/app/scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,8,10,4,3\n6,8,20,5,3\n");
    put("measured/app/validation-100.csv", "progress,iteration,metric\n1,5,0\n2,40,0\n");
    put("measured/app/validation-400.csv", "progress,iteration,metric\n1,5,0\n2,20,0\n");
  }
  void put(const std::string& name, std::string_view text) const { ASSERT_TRUE(write_text_file(root_ + "/" + name, text).ok()); }
  [[nodiscard]] absl::StatusOr<Workload> read(std::string_view rows, const WorkloadOptions& options = {}) const {
    const std::string path = root_ + "/workloads/workload-1.csv";
    const absl::Status written = write_text_file(path, "name,time,application,num_replicas,batch_size\n" + std::string(rows));
    EXPECT_TRUE(written.ok());
    return read_workload(path, options, plain_cluster(16, 4));
  }

  std::string root_;
};

TEST_F(PolluxTraceTest, WorkIsTheSamplesOfTheWholeTraining) {
  const PolluxMeasurements app = read_pollux_measurements(root_ + "/measured/app").value();
  EXPECT_EQ(app.samples(100), 4000);
  EXPECT_EQ(app.samples(400), 8000);
  EXPECT_THAT(app.samples(200), DoubleEq(6000)) << "half-way on a log scale";
  EXPECT_EQ(app.samples(50), 4000) << "outside, the nearer end";
  EXPECT_EQ(app.samples(800), 8000);
}

TEST_F(PolluxTraceTest, SpeedIsTheBatchOverTheMeasuredStep) {
  const PolluxMeasurements app = read_pollux_measurements(root_ + "/measured/app").value();
  const std::vector<model::RatePoint> rates = app.rates(60);
  ASSERT_EQ(rates.size(), 5U);
  // (1 server, 1 worker): 60 samples in 3 parts of 20: two without synchronisation, one with.
  EXPECT_EQ(rates[0], (model::RatePoint{1, 1, 60 / (2 * 2.0 + 2.0)}));
  // (1, 2): 30 each, in 2 parts of 15: (2 - 0.5) + 2.
  EXPECT_EQ(rates[1], (model::RatePoint{2, 1, 60 / (1.5 + 2.0)}));
  // (2, 2): 30 each on two servers: (2.5 - 1) + 2.5.
  EXPECT_EQ(rates[2], (model::RatePoint{2, 2, 60 / (1.5 + 2.5)}));
  // (2, 4): 15 each, the mean of placements 22 and 13: (3.5 + 5.5) / 2.
  EXPECT_EQ(rates[3], (model::RatePoint{4, 2, 60 / 4.5}));
  // (6, 8): 7.5 each, below the smallest measured: its step.
  EXPECT_EQ(rates[4], (model::RatePoint{8, 6, 60 / 4.0}));
  EXPECT_EQ(app.rates(3).size(), 3U) << "no more workers than samples";
  EXPECT_EQ(app.most_workers(60), 4) << "8 workers would get less than 10 samples";
}

TEST_F(PolluxTraceTest, AJobRunsAtItsMeasuredSpeed) {
  const auto workload = read("app-0,107,app,2,60\napp-1,97,app,1,100\n");
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->format, WorkloadFormat::kPollux);
  const model::Job& job = workload->jobs[1];
  EXPECT_EQ(job.id, "app-0");
  EXPECT_EQ(job.arrival_s, 10) << "times count from the first arrival";
  EXPECT_EQ(job.min_workers, 2);
  EXPECT_EQ(job.max_workers, 2);
  EXPECT_EQ(job.work, 4000);
  EXPECT_THAT(job.progress.per_slot({2, 1, {}}, 60), DoubleEq(60 * 60 / 3.5));
  EXPECT_THAT(job.progress.per_slot({2, 2, {}}, 60), DoubleEq(60 * 60 / 4.0)) << "over two servers";
  EXPECT_THAT(job.value(*job.work), DoubleEq(1));
  EXPECT_THAT(workload->filling, HasSubstr("batch sizes are fixed"));

  const auto elastic = read("app-0,107,app,2,60\n", {.elastic = true});
  ASSERT_TRUE(elastic.ok()) << elastic.status();
  EXPECT_EQ(elastic->jobs[0].min_workers, 1);
  EXPECT_EQ(elastic->jobs[0].max_workers, 4);
  EXPECT_EQ(elastic->jobs[0].progress.resize_s, 30);
}

TEST_F(PolluxTraceTest, NamesWhatIsWrongInTheWorkload) {
  EXPECT_THAT(read("a,1,app,0,60\n"), FailsWith("workload-1.csv:2: num_replicas: '0' is not a whole number of at least 1"));
  EXPECT_THAT(read("a,1,app,3,2\n"), FailsWith("workload-1.csv:2: num_replicas: 3 workers for a batch of 2"));
  EXPECT_THAT(read("a,1,app,1,-2\n"), FailsWith("workload-1.csv:2: batch_size: '-2' is not a finite number above 0"));
  EXPECT_THAT(read("a,-1,app,1,2\n"), FailsWith("workload-1.csv:2: time: '-1' is not a finite number of at least 0"));
  EXPECT_THAT(read("a,1,../app,1,2\n"), FailsWith("workload-1.csv:2: application: '../app' is no name of a folder"));
  EXPECT_THAT(read("a,1,gpt9,1,2\n"), FailsWith("/measured/gpt9/placements.csv: cannot be opened"));
  EXPECT_THAT(read("a,1,gpt9,1,2\n"), FailsWith("give the folder that holds gpt9/placements.csv by --measured"));
  EXPECT_THAT(read("a,1,app,1,2\na,2,app,1,2\n"), FailsWith("workload-1.csv:3: the job 'a' is there twice (first in line 2)"));
}

TEST_F(PolluxTraceTest, NamesWhatIsWrongInTheMeasurements) {
  put("measured/app/placements.csv", "placement,local_bsz,step_time,sync_time\n1x,10,1,0\n");
  EXPECT_THAT(read("a,1,app,1,2\n"), FailsWith("placements.csv:2: placement: '1x': write the GPUs on each server as digits"));
  put("measured/app/placements.csv", "placement,local_bsz,step_time,sync_time\n1,10,0,0\n");
  EXPECT_THAT(read("a,1,app,1,2\n"), FailsWith("placements.csv:2: step_time: '0' is not a finite number above 0"));
  put("measured/app/placements.csv", "placement,local_bsz,step_time,sync_time\n1,10,1,2\n");
  EXPECT_THAT(read("a,1,app,1,2\n"), FailsWith("placements.csv:2: sync_time: is longer than the whole step"));
  put("measured/app/placements.csv", "placement,local_bsz,step_time\n1,10,1\n");
  EXPECT_THAT(read("a,1,app,1,2\n"), FailsWith("placements.csv:1: the column sync_time is missing"));
  put("measured/app/placements.csv", kPlacements);
  put("measured/app/validation-400.csv", "progress,iteration,metric\n");
  EXPECT_THAT(read("a,1,app,1,2\n"), FailsWith("validation-400.csv: has no row"));
  std::filesystem::remove(root_ + "/measured/app/validation-400.csv");
  std::filesystem::remove(root_ + "/measured/app/validation-100.csv");
  EXPECT_THAT(read("a,1,app,1,2\n"), FailsWith("holds no validation-BATCH.csv"));
  put("measured/app/validation-many.csv", "iteration\n1\n");
  EXPECT_THAT(read("a,1,app,1,2\n"), FailsWith("validation-many.csv: its name holds no batch size"));
}

TEST(PolluxRealTest, EveryPublishedWorkloadLoads) {
  MAYPOLE_NEED_TRACE("pollux-osdi21/workloads/workload-1.csv");
  for (const auto& [folder, jobs] : {std::pair("workloads", 160U), std::pair("workloads-0.5", 80U), std::pair("workloads-1.5", 240U),
                                     std::pair("workloads-2.0", 320U), std::pair("workloads-realistic", 160U)}) {
    for (int number = 1; number <= 8; ++number) {
      const std::string path = fmt::format("{}/pollux-osdi21/{}/workload-{}.csv", traces(), folder, number);
      for (const bool elastic : {false, true}) {
        const auto workload = read_workload(path, {.elastic = elastic}, plain_cluster(16, 4));
        ASSERT_TRUE(workload.ok()) << workload.status();
        EXPECT_EQ(workload->jobs.size(), jobs) << path;
        for (const model::Job& job : workload->jobs) {
          EXPECT_LE(job.max_workers, 64);
          const double hours = *job.work / job.progress.per_slot({job.workers, (job.workers + 3) / 4, {}}, 3600);
          EXPECT_GT(hours, 0.005) << job.id << " in " << path;
          EXPECT_LT(hours, 300) << job.id << " in " << path;
        }
      }
    }
  }
  const auto suggested = suggest_cluster(traces() + "/pollux-osdi21/workloads/workload-1.csv");
  ASSERT_TRUE(suggested.ok()) << suggested.status();
  EXPECT_EQ(suggested->cluster.num_servers(), 16U);
}

}  // namespace
}  // namespace maypole::formats
