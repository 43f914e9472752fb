// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/environment.h"

#include "maypole/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace maypole::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Values = std::map<std::string, std::string>;

absl::StatusOr<Environment> read(const Values& values) {
  return read_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

std::string error_of(const Values& values) {
  const auto environment = read(values);
  return environment.ok() ? "no error" : base::message(environment.status());
}

Values with(Values values, const std::string& name, const std::string& value) {
  values[name] = value;
  return values;
}

const Values kLauncher = {{"RANK", "0"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "0"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.1"},
                          {"MASTER_PORT", "29500"},
                          {"MAYPOLE_JOB_ID", "job-7"},
                          {"MAYPOLE_SECRET", "s3cret"},
                          {"MAYPOLE_RENDEZVOUS", "10.0.0.1:4711"},
                          {"MAYPOLE_RENDEZVOUS_FD", "9"},
                          {"MAYPOLE_HOST", "a"},
                          {"MAYPOLE_INTERFACE", "eth0"},
                          {"MAYPOLE_TRANSPORT", "tcp"},
                          {"MAYPOLE_BANDWIDTH", "200Mbps"},
                          {"MAYPOLE_SCHEDULE", "dear"},
                          {"MAYPOLE_BACKEND", "c10d"},
                          {"MAYPOLE_TIMEOUT", "5min"},
                          {"MAYPOLE_START_TIMEOUT", "90s"},
                          {"MAYPOLE_HEARTBEAT", "500ms"},
                          {"MAYPOLE_REPORT_DIR", "/tmp/r"},
                          {"MAYPOLE_TIMELINE_DIR", "/tmp/t"}};

const Values kTorchrun = {
    {"RANK", "3"},           {"WORLD_SIZE", "4"},      {"LOCAL_RANK", "1"},           {"LOCAL_WORLD_SIZE", "2"},
    {"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "r1"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};

const Values kSlurm = {{"SLURM_PROCID", "5"},
                       {"SLURM_NTASKS", "8"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_JOB_ID", "42"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_JOB_NODELIST", "node[03-05,9],x"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1(x2)"}};

TEST(EnvironmentTest, WithoutVariablesTheWorldIsOneWorker) {
  const auto environment = read({});
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->connect.num_ranks, 1);
  EXPECT_EQ(environment->local_size, 1);
  EXPECT_EQ(environment->schedule, std::nullopt);
  EXPECT_EQ(environment->timeout, std::chrono::minutes(30));
  EXPECT_EQ(environment->heartbeat, std::chrono::seconds(2));
}

TEST(EnvironmentTest, EverythingThatTheLauncherSetsIsRead) {
  const auto environment = read(kLauncher);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->connect.rank, 0);
  EXPECT_EQ(environment->connect.num_ranks, 4);
  EXPECT_EQ(environment->connect.job_id, "job-7");
  EXPECT_EQ(environment->connect.secret, "s3cret");
  EXPECT_EQ(environment->connect.rendezvous, "10.0.0.1:4711");
  EXPECT_EQ(environment->connect.rendezvous_listener, 9);
  EXPECT_EQ(environment->connect.host, "a");
  EXPECT_EQ(environment->connect.interface, "eth0");
  EXPECT_EQ(environment->connect.transport, TransportChoice::kTcp);
  EXPECT_NEAR(environment->connect.edge_bandwidth.bytes_per_second, 200e6 / 8 * 0.95, 1);
  EXPECT_EQ(environment->local_size, 2);
  EXPECT_EQ(environment->schedule, "dear");
  EXPECT_EQ(environment->backend, "c10d");
  EXPECT_EQ(environment->timeout, std::chrono::minutes(5));
  EXPECT_EQ(environment->heartbeat, std::chrono::milliseconds(500));
  EXPECT_EQ(environment->report_directory, "/tmp/r");
  EXPECT_EQ(environment->timeline_directory, "/tmp/t");
}

TEST(EnvironmentTest, OnlyRankZeroInheritsTheListener) { EXPECT_EQ(read(with(kLauncher, "RANK", "1"))->connect.rendezvous_listener, -1); }

TEST(EnvironmentTest, TorchrunGivesTheNextPortAJobAndAnEpoch) {
  const auto environment = read(kTorchrun);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->connect.rank, 3);
  EXPECT_EQ(environment->connect.rendezvous, "head:29501");
  EXPECT_EQ(environment->connect.epoch, 3u);
  EXPECT_THAT(environment->connect.job_id, HasSubstr("r1"));
  EXPECT_THAT(environment->connect.secret, HasSubstr("r1"));
  EXPECT_EQ(environment->local_rank, 1);
  EXPECT_EQ(read(with(kTorchrun, "MAYPOLE_SECRET", "own"))->connect.secret, "own");
  EXPECT_EQ(read(with(kTorchrun, "MASTER_ADDR", "fd00::1"))->connect.rendezvous, "[fd00::1]:29501");
}

TEST(EnvironmentTest, SlurmGivesTheFirstHostAndAPortOfTheJob) {
  const auto environment = read(kSlurm);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->connect.rank, 5);
  EXPECT_EQ(environment->connect.num_ranks, 8);
  EXPECT_EQ(environment->local_rank, 1);
  EXPECT_EQ(environment->local_size, 2);
  EXPECT_EQ(environment->connect.rendezvous, "node03:21302");
  EXPECT_EQ(environment->connect.secret, "slurm-42.0");
  EXPECT_EQ(read(with(kSlurm, "SLURM_STEP_ID", "1"))->connect.rendezvous, "node03:21303");
  EXPECT_THAT(read(with(kSlurm, "SLURM_JOB_NODELIST", "rack[1-2]n[4-5]"))->connect.rendezvous, HasSubstr("rack1n4:"));
  EXPECT_THAT(read(with(kSlurm, "SLURM_JOB_NODELIST", "alpha,beta"))->connect.rendezvous, HasSubstr("alpha:"));
}

TEST(EnvironmentTest, MaypoleVariablesOverruleTheLauncher) {
  EXPECT_EQ(read(with(kSlurm, "MAYPOLE_RENDEZVOUS", "[::1]:99"))->connect.rendezvous, "[::1]:99");
  EXPECT_EQ(read(with(kTorchrun, "MAYPOLE_RENDEZVOUS", "h:99"))->connect.rendezvous, "h:99");
}

TEST(EnvironmentTest, AnEmptyValueCountsAsNotSet) { EXPECT_TRUE(read({{"RANK", ""}, {"WORLD_SIZE", ""}, {"MAYPOLE_TRANSPORT", ""}}).ok()); }

TEST(EnvironmentTest, AWrongValueIsOneLineWithVariableValueAndRemedy) {
  const std::vector<std::array<std::string, 3>> cases = {{"RANK", "4", "from 0 to 3"},
                                                         {"RANK", "x", "from 0 to 3"},
                                                         {"WORLD_SIZE", "0", "at least 1"},
                                                         {"LOCAL_RANK", "2", "LOCAL_WORLD_SIZE=2"},
                                                         {"MAYPOLE_TRANSPORT", "udp", "auto, shm, tcp"},
                                                         {"MAYPOLE_SCHEDULE", "fast", "sync, wfbp, dear, weave"},
                                                         {"MAYPOLE_BACKEND", "nccl", "native, c10d"},
                                                         {"MAYPOLE_BANDWIDTH", "10", "Mbps"},
                                                         {"MAYPOLE_TIMEOUT", "soon", "min"},
                                                         {"MAYPOLE_START_TIMEOUT", "-1s", "MAYPOLE_START_TIMEOUT"},
                                                         {"MAYPOLE_HEARTBEAT", "0s", "above zero"},
                                                         {"MAYPOLE_RENDEZVOUS", "10.0.0.1", "host:port"},
                                                         {"MAYPOLE_RENDEZVOUS", "10.0.0.1:0", "port above 0"},
                                                         {"MAYPOLE_RENDEZVOUS", "fd00::1:80", "[IPv6 address]:port"},
                                                         {"MAYPOLE_RENDEZVOUS_FD", "-2", "at least 0"}};
  for (const auto& [name, value, remedy] : cases) {
    EXPECT_THAT(error_of(with(kLauncher, name, value)), AllOf(HasSubstr(name), HasSubstr(value), HasSubstr(remedy), Not(HasSubstr("\n"))));
  }
  EXPECT_THAT(error_of(with(kTorchrun, "MASTER_PORT", "65535")), HasSubstr("MASTER_PORT='65535'"));
}

TEST(EnvironmentTest, HalfAnEnvironmentIsRefusedByName) {
  EXPECT_THAT(error_of({{"RANK", "1"}}), AllOf(HasSubstr("RANK"), HasSubstr("WORLD_SIZE is not")));
  EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not"));
  EXPECT_THAT(error_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(error_of({{"MAYPOLE_RENDEZVOUS", "h:1"}}), HasSubstr("RANK and WORLD_SIZE are not"));
  EXPECT_THAT(error_of({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}), HasSubstr("SLURM_JOB_NODELIST"));
}

}  // namespace
}  // namespace maypole::comm
