// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/worker_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

using testing::Contains;
using testing::Not;
using testing::StartsWith;

JobSpec spec_of_two() {
  JobSpec spec;
  spec.world_size = 4;
  spec.first_rank = 2;
  spec.num_workers = 2;
  spec.job_id = "id";
  spec.host = "b";
  return spec;
}

const StartOrder kOrder{"10.0.0.1:4000", "10.0.0.1", 29500, 2};

TEST(WorkerEnvironment, SaysWhoTheWorkerIs) {
  const JobSpec spec = spec_of_two();
  const auto environment = worker_environment({"HOME=/h"}, {spec, kOrder, 3, 8, "/tmp/x", -1});
  for (const char* variable : {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500",
                               "MAYPOLE_RENDEZVOUS=10.0.0.1:4000", "MAYPOLE_JOB_ID=id", "MAYPOLE_HOST=b", "OMP_NUM_THREADS=4", "HOME=/h"}) {
    EXPECT_THAT(environment, Contains(variable));
  }
}

TEST(WorkerEnvironment, DropsWhatAJobAroundItSet) {
  const JobSpec spec = spec_of_two();
  const auto environment = worker_environment({"RANK=0", "MAYPOLE_RENDEZVOUS_FD=9", "MAYPOLE_SECRET=old", "MAYPOLE_TIMELINE_DIR=/old"},
                                              {spec, kOrder, 2, 8, "/tmp/x", -1});
  EXPECT_THAT(environment, Contains("RANK=2"));
  EXPECT_THAT(environment, Contains("MAYPOLE_SECRET="));
  EXPECT_THAT(environment, Not(Contains(StartsWith("MAYPOLE_RENDEZVOUS_FD"))));
  EXPECT_THAT(environment, Not(Contains(StartsWith("MAYPOLE_TIMELINE_DIR"))));
}

TEST(WorkerEnvironment, KeepsWhatTheUserSet) {
  JobSpec spec = spec_of_two();
  spec.environment = {{"MAYPOLE_TIMEOUT", "1s"}};
  const auto environment = worker_environment({"OMP_NUM_THREADS=7", "MAYPOLE_TIMEOUT=5min"}, {spec, kOrder, 2, 8, "/tmp/x", -1});
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=7"));
  EXPECT_THAT(environment, Contains("MAYPOLE_TIMEOUT=1s"));
}

TEST(WorkerEnvironment, GivesEachWorkerAtLeastOneThread) {
  const JobSpec spec = spec_of_two();
  EXPECT_THAT(worker_environment({}, {spec, kOrder, 2, 1, "/tmp/x", -1}), Contains("OMP_NUM_THREADS=1"));
}

TEST(WorkerEnvironment, SendsOnlyListedVariablesToOtherHosts) {
  const auto forwarded =
      forwarded_environment({"PATH=/p", "HOME=/h", "MAYPOLE_SCHEDULE=dear", "MAYPOLE_SECRET=s", "OMP_X=1", "AWS_SECRET=t"});
  EXPECT_EQ(forwarded, (std::map<std::string, std::string>{{"PATH", "/p"}, {"MAYPOLE_SCHEDULE", "dear"}, {"OMP_X", "1"}}));
}

}  // namespace
}  // namespace maypole::cli
