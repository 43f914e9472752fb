// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/horizon_bound.h"

#include "maypole/base/clock.h"
#include "maypole/sched/policy.h"
#include "maypole/sim/metrics.h"
#include "maypole/sim/paper_workload.h"
#include "maypole/sim/simulator.h"

#include <gtest/gtest.h>

#include <cmath>

namespace maypole::sim {
namespace {

model::Cluster pool(double gpus) {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"r"};
  model::Server server;
  server.id = "s";
  server.rack = model::RackId(0);
  server.capacity.assign(1, gpus);
  parts.servers.push_back(server);
  return model::Cluster::make(parts).value();
}

model::Job job(const std::string& id, double arrival_s, int most, model::UtilityKind kind, double weight) {
  model::Job made;
  made.id = id;
  made.arrival_s = arrival_s;
  made.max_workers = most;
  made.demand.assign(1, 1);
  made.weight = weight;
  made.utility.kind = kind;
  return made;
}

TEST(HorizonBound, IsWhatJobsReachAloneWhereTheyDoNotCompete) {
  model::Instance instance{pool(4), {job("a", 0, 2, model::UtilityKind::kSqrt, 1), job("b", 0, 2, model::UtilityKind::kSqrt, 3)}, 60, 8, 1};
  const HorizonBound bound = horizon_bound(instance);
  EXPECT_TRUE(bound.priced);
  EXPECT_DOUBLE_EQ(bound.value, 4 + 3 * 4);
  EXPECT_DOUBLE_EQ(bound.reach_alone, bound.value);
}

// Two jobs share 4 GPUs over 8 slots: 32 worker-slots, each takes up to 4 a slot. sqrt with weights 1 and 3: z_b = 9 z_a, so 3.2 and 28.8.
TEST(HorizonBound, SharesAPoolAsTheOptimumDoes) {
  model::Instance instance{pool(4), {job("a", 0, 4, model::UtilityKind::kSqrt, 1), job("b", 0, 4, model::UtilityKind::kSqrt, 3)}, 60, 8, 1};
  const double optimum = std::sqrt(3.2) + 3 * std::sqrt(28.8);
  const HorizonBound bound = horizon_bound(instance);
  EXPECT_GE(bound.value, optimum * (1 - 1e-9));
  EXPECT_LE(bound.value, optimum * 1.001);
  EXPECT_LE(bound.value, bound.reach_alone);
}

// b comes in slot 6 of 8 and is worth more: it gets the last two slots whole (8), a the first six (24); one price for all would say more.
TEST(HorizonBound, PricesLateSlotsHigherWhereALateJobNeedsThem) {
  model::Instance instance{
      pool(4), {job("a", 0, 4, model::UtilityKind::kLinear, 1), job("b", 360, 4, model::UtilityKind::kLinear, 5)}, 60, 8, 1};
  const HorizonBound bound = horizon_bound(instance);
  EXPECT_GE(bound.value, 64 * (1 - 1e-9));
  EXPECT_LE(bound.value, 64 * 1.005);
}

TEST(HorizonBound, IsAboveWhatPoliciesReach) {
  for (const model::UtilityKind kind : {model::UtilityKind::kSigmoid, model::UtilityKind::kSqrt, model::UtilityKind::kLog}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      PaperWorkloadOptions workload;
      workload.contended = true;
      workload.jobs = 120;
      workload.utility = kind;
      const model::Instance instance = paper_instance({.servers = 12}, workload, seed);
      const HorizonBound bound = horizon_bound(instance);
      EXPECT_LE(bound.value, bound.reach_alone);
      for (const char* name : {"gadget", "drf", "srtf"}) {
        const base::ManualClock clock;
        const auto simulation = simulate(instance, sched::make_policy(name, {}).value(), {}, clock);
        ASSERT_TRUE(simulation.ok());
        EXPECT_LE(metrics_of(*simulation, instance).total_utility, bound.value) << name << " seed " << seed;
      }
    }
  }
}

TEST(HorizonBound, AnOpenHorizonIsNotPriced) {
  model::Instance instance{pool(4), {job("a", 0, 2, model::UtilityKind::kLinear, 1)}, 60, 0, 1};
  instance.jobs[0].work = 10;
  EXPECT_FALSE(horizon_bound(instance).priced);
  EXPECT_DOUBLE_EQ(horizon_bound(instance).value, 10);
}

}  // namespace
}  // namespace maypole::sim
