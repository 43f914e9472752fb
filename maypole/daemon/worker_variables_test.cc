// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/worker_variables.h"

#include "maypole/base/units.h"
#include "maypole/daemon/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::daemon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(WorkerVariablesTest, SaysWhoTheWorkerIsAndKeepsSecretsOfTheDaemon) {
  EpochOrder order;
  order.id = {7, 2};
  order.environment = {{"A", "job"}, {"RANK", "9"}};
  order.workers = {{"s0", {}}, {"s1", {4, 5}}, {"s1", {6, 7}}};
  order.edge_bandwidth = *base::parse_bandwidth("200Mbps");
  const auto all = worker_variables(order, {"secret", 1234, 8, 5678}, {"A=own", "B=own", "MAYPOLE_TOKEN=x", "WORLD_SIZE=5"}, 12);
  ASSERT_EQ(all.size(), 3U);
  for (const char* variable : {"A=job", "B=own", "RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MAYPOLE_HOST=s1",
                               "MAYPOLE_JOB_ID=7", "MAYPOLE_RENDEZVOUS=127.0.0.1:1234", "MASTER_PORT=5678", "OMP_NUM_THREADS=4",
                               "CUDA_VISIBLE_DEVICES=6,7", "MAYPOLE_SECRET=secret"}) {
    EXPECT_THAT(all[2], Contains(variable));
  }
  EXPECT_THAT(all[2], Not(Contains(StartsWith("MAYPOLE_TOKEN="))));
  EXPECT_THAT(all[2], Not(Contains(StartsWith("MAYPOLE_RENDEZVOUS_FD="))));
  EXPECT_THAT(all[0], Contains("MAYPOLE_RENDEZVOUS_FD=8"));
  EXPECT_THAT(all[0], Not(Contains(StartsWith("CUDA_VISIBLE_DEVICES="))));
  for (const std::string& variable : all[0]) {
    if (variable.starts_with("MAYPOLE_BANDWIDTH=")) {
      EXPECT_NEAR(base::parse_bandwidth(variable.substr(18))->bytes_per_second, order.edge_bandwidth.bytes_per_second, 1);
    }
  }
}

TEST(DeviceChoiceTest, ServersShareTheMachinesDevicesWithoutOverlap) {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"r"};
  for (const char* id : {"a", "b"}) {
    parts.servers.push_back({id, model::RackId(0), model::Amounts(1, 4)});
  }
  const auto cluster = model::Cluster::make(std::move(parts));
  ASSERT_TRUE(cluster.ok());
  model::Job job;
  job.demand = model::Amounts(1, 2);
  const model::ServerId a(0);
  const model::ServerId b(1);
  const Devices devices = choose_devices(*cluster, job, {a, b}, {0, 5});
  EXPECT_THAT(devices, ElementsAre(ElementsAre(1, 2), ElementsAre(4, 6)));
}

TEST(DeviceChoiceTest, IsReadAsItIsWritten) {
  const Devices devices = {{0, 1}, {}, {12}};
  EXPECT_EQ(parse_devices(devices_text(devices), 3), devices);
  EXPECT_EQ(devices_text({{}, {}}), "");
  EXPECT_THAT(parse_devices("", 2), ElementsAre(IsEmpty(), IsEmpty()));
}

}  // namespace
}  // namespace maypole::daemon
