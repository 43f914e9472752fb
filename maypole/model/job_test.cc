// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/job.h"

#include "maypole/model/status_testing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

namespace maypole::model {
namespace {

constexpr ResourceId kGpu(0);
constexpr ResourceId kCpu(1);
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Servers with (4 GPUs, 8 CPUs), (2, 16), (0, 64).
Cluster cluster() {
  ClusterParts parts;
  parts.resources = {"gpu", "cpu"};
  for (const auto& [gpus, cpus] : {std::pair(4.0, 8.0), std::pair(2.0, 16.0), std::pair(0.0, 64.0)}) {
    Server server{.id = "s" + std::to_string(parts.servers.size()), .rack = RackId(), .capacity = Amounts(2)};
    server.capacity[kGpu] = gpus;
    server.capacity[kCpu] = cpus;
    parts.servers.push_back(server);
  }
  return Cluster::make(std::move(parts)).value();
}

Job good_job() {
  Job job;
  job.id = "a";
  job.max_workers = 4;
  job.workers = 2;
  job.demand = Amounts(2);
  job.demand[kGpu] = 1;
  job.demand[kCpu] = 3;
  return job;
}

template <typename Change>
absl::Status after(Change change) {
  Job job = good_job();
  change(job);
  return check_job(job, cluster());
}

TEST(JobTest, AGoodJobPasses) {
  EXPECT_TRUE(after([](Job&) {}).ok());
}

TEST(JobTest, ItsValueIsItsUtilityTimesItsWeight) {
  Job job = good_job();
  job.weight = 3;
  EXPECT_EQ(job.value(16), 12);
  job.utility = {.kind = UtilityKind::kDeadline, .late = 0.5, .work = 8};
  EXPECT_EQ(job.value(8, 4), 3 * 0.75);
}

TEST(JobTest, TheEmptyClusterHoldsWhatFitsOnEachServer) {
  const Job job = good_job();  // min(4, 8 / 3) + min(2, 16 / 3) + 0
  EXPECT_EQ(empty_cluster_workers(job, cluster()), 4);
  EXPECT_EQ(empty_cluster_workers(job, cluster(), 3), 3);
}

TEST(JobTest, WorkersThatFitExactlyFitWhereDivisionRoundsDown) {
  ClusterParts parts;
  parts.resources = {"gpu"};
  parts.servers = {{.id = "s0", .rack = RackId(), .capacity = Amounts(1, 0.3)}};  // 0.3 / 0.1 = 2.9999999999999996
  Job job = good_job();
  job.demand = Amounts(1, 0.1);
  EXPECT_EQ(empty_cluster_workers(job, Cluster::make(std::move(parts)).value()), 3);
}

TEST(JobTest, AJobThatNeedsAlmostNothingFitsUpToTheLimit) {
  Job job = good_job();
  job.demand[kGpu] = 1e-300;
  job.demand[kCpu] = 0;
  EXPECT_EQ(empty_cluster_workers(job, cluster()), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(empty_cluster_workers(job, cluster(), 7), 7);
}

TEST(JobTest, ARingCountsEachServerOnce) {
  const std::vector<ServerId> ring = {ServerId(2), ServerId(0), ServerId(2)};
  EXPECT_EQ(num_servers(ring), 2);
  EXPECT_EQ(num_servers({}), 0);
  const Embedding embedding{.ring = ring, .edges = {{}, {}, {}}, .bandwidth = {1e6}};
  const RingShape shape = shape_of(embedding);
  EXPECT_EQ(shape.workers, 3);
  EXPECT_EQ(shape.servers, 2);
  EXPECT_EQ(shape.bandwidth.bytes_per_second, 1e6);
}

TEST(JobTest, RefusesWrongFieldsByName) {
  EXPECT_THAT(after([](Job& j) { j.id = ""; }), FailsWith("a job has an empty id: give it a name"));
  for (const double wrong : {-1.0, kInfinity, std::nan("")}) {
    EXPECT_THAT(after([&](Job& j) { j.arrival_s = wrong; }), FailsWith("job 'a' arrives at"));
    EXPECT_THAT(after([&](Job& j) { j.demand[kGpu] = wrong; }), FailsWith("of gpu per worker: give a finite amount of at least 0"));
    EXPECT_THAT(after([&](Job& j) { j.edge_bandwidth.bytes_per_second = wrong; }), FailsWith("job 'a' has edge_bandwidth"));
    EXPECT_THAT(after([&](Job& j) { j.work = wrong; }), FailsWith("job 'a' has work"));
    EXPECT_THAT(after([&](Job& j) { j.budget = wrong; }), FailsWith("job 'a' has budget"));
    EXPECT_THAT(after([&](Job& j) { j.weight = wrong; }), FailsWith("job 'a' has weight"));
    EXPECT_THAT(after([&](Job& j) { j.max_racks_s = wrong; }), FailsWith("job 'a' has racks 0@"));
    EXPECT_THAT(after([&](Job& j) { j.progress.resize_s = wrong; }), FailsWith("job 'a' has progress.resize_s"));
    EXPECT_THAT(after([&](Job& j) { j.progress.zeta = wrong; }), FailsWith("job 'a' has progress.zeta"));
  }
  EXPECT_THAT(after([](Job& j) { j.work = 0; }), FailsWith("job 'a' has work 0: give a finite amount above 0, or none"));
  EXPECT_THAT(after([](Job& j) { j.budget = 0; }), FailsWith("job 'a' has budget 0: give worker-slots above 0, or none"));
  EXPECT_THAT(after([](Job& j) { j.max_racks = -1; }), FailsWith("job 'a' has racks -1@0"));
  EXPECT_THAT(after([](Job& j) { j.min_workers = 0; }), FailsWith("job 'a' has min_workers 0, workers 2, max_workers 4"));
  EXPECT_THAT(after([](Job& j) { j.min_workers = 3; }), FailsWith("give 1 <= min_workers <= workers <= max_workers"));
  EXPECT_THAT(after([](Job& j) { j.max_workers = 1; }), FailsWith("job 'a' has min_workers 1, workers 2, max_workers 1"));
  EXPECT_THAT(after([](Job& j) { j.max_workers = 2'000'000'000; }), FailsWith("job 'a' has max_workers 2000000000: give at most 100000"));
  EXPECT_THAT(after([](Job& j) { j.demand = Amounts(1, 1); }), FailsWith("job 'a' names 1 resources, the cluster has 2"));
  EXPECT_THAT(after([](Job& j) { j.demand = Amounts(2, 0); }), FailsWith("job 'a' needs nothing per worker"));
}

TEST(JobTest, RefusesUtilitiesOutOfTheirRange) {
  const auto with = [](Utility utility) { return after([&](Job& job) { job.utility = utility; }); };
  EXPECT_THAT(with({.kind = UtilityKind::kEnergy, .cost = -1}), FailsWith("job 'a' has utility.cost -1"));
  EXPECT_THAT(with({.kind = UtilityKind::kSigmoid, .sensitivity = 0}), FailsWith("job 'a' has utility.sensitivity 0"));
  EXPECT_THAT(with({.kind = UtilityKind::kSigmoid, .sensitivity = 1, .expected = kInfinity}),
              FailsWith("job 'a' has utility.expected inf"));
  EXPECT_THAT(with({.kind = UtilityKind::kDeadline, .work = 0}), FailsWith("job 'a' has utility.work 0"));
  EXPECT_THAT(with({.kind = UtilityKind::kDeadline, .deadline_s = -1, .work = 1}), FailsWith("job 'a' has utility.deadline_s -1"));
  EXPECT_THAT(with({.kind = UtilityKind::kDeadline, .late = 1.5, .work = 1}), FailsWith("job 'a' has utility.late 1.5"));
  EXPECT_TRUE(with({.kind = UtilityKind::kDeadline, .late = 1, .work = 1}).ok());
}

TEST(JobTest, RefusesProgressModelsOutOfTheirRange) {
  const auto with = [](ProgressModel progress) { return after([&](Job& job) { job.progress = progress; }); };
  EXPECT_THAT(with({.kind = ProgressKind::kPower, .exponent = 0}), FailsWith("job 'a' has progress.exponent 0"));
  EXPECT_THAT(with({.kind = ProgressKind::kPower, .exponent = 1.1}), FailsWith("job 'a' has progress.exponent 1.1"));
  EXPECT_THAT(with({.kind = ProgressKind::kPower, .reference = 0}), FailsWith("job 'a' has progress.reference 0"));
  const ProgressModel ring{.kind = ProgressKind::kRing, .forward_s = 1, .backward_s = 2};
  EXPECT_TRUE(with(ring).ok());
  for (double ProgressModel::* field : {&ProgressModel::gradient_bytes, &ProgressModel::reduce_bytes_per_s, &ProgressModel::forward_s,
                                        &ProgressModel::backward_s, &ProgressModel::latency_s}) {
    ProgressModel wrong = ring;
    wrong.*field = -5;
    EXPECT_THAT(with(wrong), FailsWith("job 'a' has a cost of -5 in progress"));
  }
  ProgressModel backwards = ring;
  backwards.bandwidth.bytes_per_second = -5;
  EXPECT_THAT(with(backwards), FailsWith("job 'a' has a cost of -5 in progress"));
  EXPECT_THAT(with({.kind = ProgressKind::kOverlap}), FailsWith("job 'a' has no compute time"));
  EXPECT_THAT(with({.kind = ProgressKind::kTable}), FailsWith("job 'a' has an empty table"));
  for (const RatePoint& wrong : {RatePoint{0, 1, 1}, RatePoint{1, 0, 1}, RatePoint{1, 1, 0}, RatePoint{1, 1, kInfinity}}) {
    EXPECT_THAT(with({.kind = ProgressKind::kTable, .points = {wrong}}), FailsWith("job 'a' has a bad point in progress.points"));
  }
  EXPECT_THAT(with({.kind = ProgressKind::kTable, .points = {{1, 1, 1}, {1, 1, 2}}}),
              FailsWith("job 'a' has the point (workers 1, servers 1) twice or out of order"));
  EXPECT_THAT(with({.kind = ProgressKind::kTable, .points = {{1, 2, 1}, {2, 1, 2}}}), FailsWith("twice or out of order"));
}

TEST(JobTest, AJobThatCanNeverFitIsRefusedWithBothNumbers) {
  EXPECT_THAT(after([](Job& j) { j.demand[kGpu] = 5; }),
              FailsWith("job 'a' can never run: each worker needs 5 gpu, the largest server has 4"));
  EXPECT_THAT(after([](Job& j) { j.demand[kCpu] = 65; }),
              FailsWith("job 'a' can never run: each worker needs 65 cpu, the largest server has 64"));
  EXPECT_THAT(after([](Job& j) { j.demand[kCpu] = 17; }),
              FailsWith("job 'a' can never run: no server holds all that one worker needs at once"));
  EXPECT_THAT(after([](Job& j) { j.min_workers = j.workers = j.max_workers = 5; }),
              FailsWith("job 'a' can never run: it needs at least 5 workers, the empty cluster holds 4"));
}

TEST(JobTest, ABandwidthNeedsLinksThatJoinEnoughServers) {
  ClusterParts parts;  // a and b by links of 100 MB/s, c by one of 10 MB/s
  parts.resources = {"gpu"};
  parts.racks = {"r"};
  parts.switches = {{"sw", RackId(0)}};
  for (const auto& [id, rate] : {std::pair{"a", 100e6}, std::pair{"b", 100e6}, std::pair{"c", 10e6}}) {
    const NodeId server = NodeId::from_index(parts.servers.size());
    parts.servers.push_back({id, RackId(0), Amounts(1, 2)});
    parts.links.push_back({fmt::format("{}>sw", id), server, NodeId(3), {rate}});
    parts.links.push_back({fmt::format("sw>{}", id), NodeId(3), server, {rate}});
  }
  const Cluster three = *Cluster::make(std::move(parts));
  const auto asks = [&](int workers, double rate) {
    Job job = good_job();
    job.demand = Amounts(1, 1);
    job.min_workers = job.workers = job.max_workers = workers;
    job.edge_bandwidth = {rate};
    return check_bandwidth_fits(job, three);
  };
  EXPECT_TRUE(asks(2, 200e6).ok()) << "within one server";
  EXPECT_THAT(asks(3, 200e6), FailsWith("job 'a' can never run: it needs at least 3 workers, and servers joined by links of"));
  EXPECT_THAT(asks(3, 200e6), FailsWith("hold 2: give it less bandwidth or fewer workers"));
  EXPECT_TRUE(asks(4, 100e6).ok());
  EXPECT_TRUE(asks(4, std::nextafter(100e6, 1e9)).ok()) << "the same rate in other units differs in its last bit";
  EXPECT_THAT(asks(5, 100e6), FailsWith("hold 4"));
  EXPECT_TRUE(asks(6, 10e6).ok());
  EXPECT_TRUE(asks(6, 0).ok()) << "it reserves nothing";
}

TEST(JobTest, AnInstanceIsCheckedJobByJob) {
  Instance instance{.cluster = cluster(), .jobs = {good_job(), good_job()}};
  EXPECT_THAT(check_instance(instance), FailsWith("job 'a' is there twice: give each its own id"));
  instance.jobs[1].id = "b";
  EXPECT_TRUE(check_instance(instance).ok());
  instance.slots = -1;
  EXPECT_THAT(check_instance(instance), FailsWith("the horizon is -1 slots"));
  instance.slots = 0;
  instance.slot_s = 0;
  EXPECT_THAT(check_instance(instance), FailsWith("the slot is 0 s long"));
  instance.slot_s = 60;
  instance.jobs[1].weight = -1;
  EXPECT_THAT(check_instance(instance), FailsWith("job 'b' has weight -1"));
}

}  // namespace
}  // namespace maypole::model
