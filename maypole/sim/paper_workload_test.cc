// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/paper_workload.h"

#include "maypole/sim/paper_cluster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace maypole::sim {
namespace {

model::Cluster cluster() {
  base::Rng rng(1, "cluster");
  return paper_cluster({}, rng);
}

TEST(PaperWorkload, KeepsEveryRangeOfThePaper) {
  base::Rng rng(5);
  for (const bool contended : {false, true}) {
    std::set<int> most;
    for (const model::Job& job : paper_workload({.contended = contended, .jobs = 2000}, cluster(), rng)) {
      const double slot = job.arrival_s / 60;
      EXPECT_EQ(slot, std::floor(slot));
      EXPECT_LT(slot, 150);
      most.insert(job.max_workers);
      EXPECT_GE(job.workers, 1);
      EXPECT_LE(job.workers, job.max_workers);
      EXPECT_LE(job.workers, 10 + (contended ? 10 : 0));
      const double zeta = job.progress.zeta * (contended ? 20 : 1);
      EXPECT_TRUE(zeta >= 50 && zeta <= 500 && std::abs(zeta - std::round(zeta)) < 1e-9);
      const double budget = contended ? *job.budget * job.progress.zeta : *job.budget;
      EXPECT_TRUE(budget >= 1000 - 1e-6 && budget <= 6000 + 1e-6 && std::abs(budget - std::round(budget)) < 1e-6);
      EXPECT_TRUE(job.weight >= 1 && job.weight <= 100);
      EXPECT_TRUE(job.utility.sensitivity > 0 && job.utility.sensitivity <= 1);
      EXPECT_TRUE(job.utility.expected >= 300 && job.utility.expected <= 3000);
      EXPECT_GE(job.edge_bandwidth.bytes_per_second, 0.95 * 100e6 / 8);
      EXPECT_LE(job.edge_bandwidth.bytes_per_second, 0.95 * 5e9 / 8);
    }
    EXPECT_EQ(most.size(), contended ? 20U : 5U);
  }
}

TEST(PaperWorkload, ArrivesByTheDensity) {
  base::Rng rng(1);
  std::vector<double> share(150, 0);
  const int jobs = 200000;
  for (const model::Job& job : paper_workload({.jobs = jobs}, cluster(), rng)) {
    share[static_cast<std::size_t>(job.arrival_s / 60)] += 1.0 / jobs;
  }
  // The paper's slot t is our t - 1; three whole periods, so the density's mean is 1.
  for (const int t : {1, 13, 25, 37, 50, 63, 150}) {
    EXPECT_NEAR(share[static_cast<std::size_t>(t - 1)] * 150, 1 + 0.6 * std::sin(2 * 3.14159265358979 * t / 50), 0.08) << t;
  }
}

TEST(PaperWorkload, AnotherUtilityOrReadingKeepsAllElse) {
  base::Rng one(9);
  base::Rng two(9);
  const auto sigmoid = paper_workload({.contended = true}, cluster(), one);
  const auto root =
      paper_workload({.contended = true, .budget = BudgetReading::kWorkerSlots, .utility = model::UtilityKind::kSqrt}, cluster(), two);
  ASSERT_EQ(sigmoid.size(), 400U);
  for (std::size_t i = 0; i < sigmoid.size(); ++i) {
    EXPECT_EQ(sigmoid[i].weight, root[i].weight);
    EXPECT_EQ(sigmoid[i].arrival_s, root[i].arrival_s);
    EXPECT_NEAR(*sigmoid[i].budget * sigmoid[i].progress.zeta, *root[i].budget, 1e-6);
    EXPECT_EQ(root[i].utility.kind, model::UtilityKind::kSqrt);
  }
}

TEST(PaperCluster, IsATreeOfTwoToFiveRacks) {
  std::set<std::size_t> racks;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    base::Rng rng(seed, "cluster");
    const model::Cluster made = paper_cluster({}, rng);
    EXPECT_EQ(made.num_servers(), 50U);
    EXPECT_TRUE(made.tree().has_value());
    racks.insert(made.num_racks());
    for (const model::Server& server : made.parts().servers) {
      EXPECT_TRUE((std::set<double>{1, 2, 4, 8}.contains(server.capacity[model::ResourceId(0)])));
    }
    for (const model::Link& link : made.parts().links) {
      const double gbps = link.bandwidth.bytes_per_second * 8 / 0.95 / 1e9;
      const bool to_server = made.is_server(link.from) || made.is_server(link.to);
      EXPECT_TRUE(to_server ? gbps >= 10 && gbps <= 100 : gbps >= 200 && gbps <= 3200) << gbps;
    }
  }
  EXPECT_EQ(racks, (std::set<std::size_t>{2, 3, 4, 5}));
}

TEST(PaperCluster, ScalesToATotal) {
  base::Rng rng(2, "cluster");
  EXPECT_DOUBLE_EQ(paper_cluster({.total_gpus = 300}, rng).total_capacity()[model::ResourceId(0)], 300);
}

}  // namespace
}  // namespace maypole::sim
