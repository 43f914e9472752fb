// SPDX-License-Identifier: Apache-2.0

// The parts of `gadget` against what does not share their ideas: sampled hulls, enumeration of all rings, the integer program.

#include "maypole/base/test_seed.h"
#include "maypole/sched/concave_hull.h"
#include "maypole/sched/policies/gadget_classes.h"
#include "maypole/sched/policies/gadget_columns.h"
#include "maypole/sched/policies/gadget_greedy.h"
#include "maypole/sched/policies/gadget_pooled.h"
#include "maypole/sched/policies/gadget_pricer.h"
#include "maypole/sched/sched_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace maypole::sched::gadget {
namespace {

using model::Cluster;
using model::Job;

TEST(ConcaveHull, OfASigmoidIsTheSmallestConcaveFunctionAboveItsSamples) {
  base::Rng rng(4);
  for (int trial = 0; trial < 50; ++trial) {
    Job job;
    job.utility = {.kind = model::UtilityKind::kSigmoid, .sensitivity = rng.uniform(0.01, 0.5), .expected = rng.uniform(20, 200)};
    ActiveJob active;
    active.job = &job;
    active.progress = rng.uniform(0, 100);
    const double reach = rng.uniform(10, 400);
    const HullGain gain(active, reach, 0);
    // The hull at x from above is the best chord between any two samples around it.
    const int samples = 200;
    const auto value = [&](int k) { return job.value(active.progress + reach * k / samples) - job.value(active.progress); };
    for (int x = 1; x < samples; x += 7) {
      double highest = value(x);
      for (int low = 0; low < x; ++low) {
        for (int high = x + 1; high <= samples; ++high) {
          highest = std::max(highest, value(low) + (value(high) - value(low)) * (x - low) / (high - low));
        }
      }
      EXPECT_GE(gain(reach * x / samples), highest - 1e-9);
      EXPECT_NEAR(gain(reach * x / samples), highest, 2e-3);  // samples lie beside the point of tangency
    }
  }
}

Cluster small_tree(base::Rng& rng) {
  return tree_cluster({.racks = static_cast<int>(rng.uniform_int(1, 3)),
                       .servers_per_rack = static_cast<int>(rng.uniform_int(1, 3)),
                       .gpus = static_cast<double>(rng.uniform_int(1, 3)),
                       .server_bandwidth = rng.uniform(2, 8),
                       .uplink_bandwidth = rng.uniform(2, 8)});
}

std::vector<Job> small_jobs(base::Rng& rng, const Cluster& cluster, int count) {
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i) {
    const int most =
        static_cast<int>(std::min<double>(cluster.total_capacity()[cluster.accelerator()], static_cast<double>(rng.uniform_int(1, 6))));
    jobs.push_back(elastic_job(cluster, fmt::format("j{}", i), 1, most));
    jobs.back().edge_bandwidth = {rng.uniform(1, 7)};
    jobs.back().weight = rng.uniform(1, 10);
    jobs.back().utility.kind = rng.uniform() < 0.5 ? model::UtilityKind::kSqrt : model::UtilityKind::kLog;
    jobs.back().progress.zeta = rng.uniform(1, 20);
  }
  return jobs;
}

TEST(GadgetPricer, FindsTheCheapestRingOfEverySizeAsEnumerationDoes) {
  base::Rng rng(8);
  for (int trial = 0; trial < 60; ++trial) {
    const Cluster cluster = small_tree(rng);
    const std::vector<Job> jobs = small_jobs(rng, cluster, 1);
    const SlotProblem problem = problem_of(cluster, jobs);
    const std::vector<Candidate> candidates = make_candidates(problem, {});
    const Topology topology(cluster);
    const Space space(topology, candidates);
    Prices prices = Prices::zero(topology);
    for (double& price : prices.amount) {
      price = rng.uniform();
    }
    for (double& price : prices.cut) {
      price = rng.uniform(0, 0.3);
    }
    Pricer pricer(topology);
    std::vector<int> racks(static_cast<std::size_t>(topology.num_racks()));
    std::iota(racks.begin(), racks.end(), 0);
    pricer.run({.candidate = candidates.data(), .space = &space, .prices = &prices, .racks = racks, .preferences = false});
    std::vector<double> cheapest(static_cast<std::size_t>(candidates[0].limit) + 1, std::numeric_limits<double>::infinity());
    std::vector<int> counts(cluster.num_servers(), 0);
    const std::function<void(std::size_t, int)> enumerate = [&](std::size_t server, int left) {
      if (server < counts.size()) {
        for (int n = 0; n <= left; ++n) {
          counts[server] = n;
          enumerate(server + 1, left - n);
        }
        counts[server] = 0;
        return;
      }
      Ring ring;
      for (std::size_t s = 0; s < counts.size(); ++s) {
        if (counts[s] > 0) {
          ring.parts.push_back({static_cast<int>(s), counts[s]});
          ring.workers += counts[s];
        }
      }
      Space routed(topology, candidates);
      if (ring.workers > 0 && routed.route(ring, candidates[0]) && routed.holds(ring, candidates[0])) {
        double& least = cheapest[static_cast<std::size_t>(ring.workers)];
        least = std::min(least, pricer.cost(ring, candidates[0], prices));
      }
    };
    enumerate(0, candidates[0].limit);
    std::vector<double> found(cheapest.size(), std::numeric_limits<double>::infinity());
    for (const Pricer::Choice& choice : pricer.choices()) {
      found[static_cast<std::size_t>(choice.workers)] = choice.cost;
      int workers = 0;
      for (const Part& part : pricer.parts(choice)) {
        workers += part.workers;
      }
      EXPECT_EQ(workers, choice.workers);
    }
    for (std::size_t w = 1; w < cheapest.size(); ++w) {
      if (std::isinf(cheapest[w])) {
        EXPECT_TRUE(std::isinf(found[w])) << w;
      } else {
        EXPECT_NEAR(found[w], cheapest[w], 1e-9) << w;
      }
    }
  }
}

TEST(GadgetBounds, AreNeverBelowTheIntegerOptimumAndTheAnswerIsNearIt) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  double total = 0;
  double optimum = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const Cluster cluster = small_tree(rng);
    const std::vector<Job> jobs = small_jobs(rng, cluster, 4);
    const SlotProblem problem = problem_of(cluster, jobs);
    base::Rng draws(1);
    const Decision exact = policy_named("exact")->decide(problem, draws);
    const Decision ours = policy_named("gadget")->decide(problem, draws);
    EXPECT_GE(*ours.bound, exact.utility * (1 - 1e-9)) << trial;
    EXPECT_GE(*ours.bound_lp, *ours.bound * (1 - 1e-9)) << trial;
    const std::vector<Candidate> candidates = make_candidates(problem, {});
    const Topology topology(cluster);
    Work work;
    const PooledBound pooled = pooled_bound(cluster, candidates, 1000, work);
    const ClassBound classes = class_bound(topology, candidates, ours.utility, pooled.prices,
                                           {.steps = 60, .max_columns = std::numeric_limits<std::int64_t>::max()}, work);
    EXPECT_GE(classes.bound, exact.utility * (1 - 1e-9)) << trial;
    total += ours.utility;
    optimum += exact.utility;
  }
  EXPECT_GE(total, 0.97 * optimum);
}

TEST(GadgetLimits, OfWorkAreKeptAndLeaveAGreedyAnswer) {
  base::Rng rng(12);
  const Cluster cluster = tree_cluster({.racks = 3, .servers_per_rack = 4, .gpus = 4, .server_bandwidth = 5, .uplink_bandwidth = 8});
  const std::vector<Job> jobs = small_jobs(rng, cluster, 20);
  const SlotProblem problem = problem_of(cluster, jobs);
  base::Rng draws(1);
  const Decision decision = policy_named("gadget", {.max_pivots = 3, .max_columns = 200, .max_roundings = 1})->decide(problem, draws);
  EXPECT_TRUE(decision.limited);
  EXPECT_LE(decision.work.pivots, 3);
  EXPECT_FALSE(decision.placements.empty());
  EXPECT_GE(*decision.bound, decision.utility);
  base::Rng again(1);
  EXPECT_EQ(policy_named("gadget", {.max_pivots = 3, .max_columns = 200, .max_roundings = 1})->decide(problem, again).work, decision.work);
}

}  // namespace
}  // namespace maypole::sched::gadget
