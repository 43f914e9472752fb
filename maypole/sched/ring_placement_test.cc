// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/ring_placement.h"

#include "maypole/base/test_seed.h"
#include "maypole/sched/sched_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

namespace maypole::sched {
namespace {

using model::Embedding;
using model::Job;
using model::ServerId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ActiveJob active(const Job& job) {
  ActiveJob result;
  result.job = &job;
  return result;
}

std::vector<int> servers(const std::optional<Embedding>& embedding) {
  std::vector<int> result;
  if (embedding) {
    for (const ServerId server : embedding->ring) {
      result.push_back(server.value());
    }
  }
  return result;
}

/// Occupies GPUs of a server.
void occupy(RingPlacer& placer, int server, double gpus) {
  Job job = rigid_job(placer.cluster(), "other", 1);
  job.demand[placer.cluster().accelerator()] = gpus;
  placer.take(job, placer.embed(job, {ServerId(server)}));
}

TEST(RingPlacement, TheGreedyFillsServersInOrderWhereverTheyAre) {
  const model::Cluster cluster = tree_cluster({.racks = 2, .servers_per_rack = 2, .gpus = 4});
  RingPlacer placer(cluster, RingStyle::kGreedy);
  occupy(placer, 0, 3);
  const Job job = rigid_job(cluster, "a", 6);
  EXPECT_THAT(servers(placer.place(active(job), 6)), ElementsAre(0, 1, 1, 1, 1, 2));
}

TEST(RingPlacement, ByTopologyTheFullestServerThatHoldsTheRingIsTaken) {
  const model::Cluster cluster = tree_cluster({.racks = 2, .servers_per_rack = 2, .gpus = 4});
  RingPlacer placer(cluster, RingStyle::kTopology);
  occupy(placer, 0, 3);
  occupy(placer, 3, 2);
  const Job job = rigid_job(cluster, "a", 2);
  EXPECT_THAT(servers(placer.place(active(job), 2)), ElementsAre(3, 3));
}

TEST(RingPlacement, ByTopologyOneRackIsTakenBeforeTwo) {
  const model::Cluster cluster = tree_cluster({.racks = 3, .servers_per_rack = 3, .gpus = 4});
  RingPlacer placer(cluster, RingStyle::kTopology);
  for (const int server : {0, 1, 2, 3, 6}) {
    occupy(placer, server, 2);
  }
  const Job job = rigid_job(cluster, "a", 10);  // rack 0 has 6 left, racks 1 and 2 have 10
  EXPECT_THAT(servers(placer.place(active(job), 10)), ElementsAre(3, 3, 4, 4, 4, 4, 5, 5, 5, 5));
}

TEST(RingPlacement, TenWorkersOnThreeRacksOfFourCrossAsLittleAsCanBe) {
  const model::Cluster cluster = tree_cluster({.racks = 3, .servers_per_rack = 4, .gpus = 1});
  RingPlacer placer(cluster, RingStyle::kTopology);
  const Job job = rigid_job(cluster, "a", 10);
  const std::optional<Embedding> ring = placer.place(active(job), 10);
  EXPECT_THAT(servers(ring), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(model::rack_crossings(cluster, ring->ring), 3);
}

TEST(RingPlacement, OneWorkerHasNoEdgeAndTwoHaveOneEachWay) {
  const model::Cluster cluster = tree_cluster({.racks = 1, .servers_per_rack = 2, .gpus = 1, .server_bandwidth = 10});
  RingPlacer placer(cluster, RingStyle::kGreedy);
  Job job = rigid_job(cluster, "a", 2);
  job.edge_bandwidth = {4};
  const std::optional<Embedding> one = placer.place(active(job), 1);
  ASSERT_TRUE(one);
  EXPECT_THAT(one->edges, IsEmpty());
  const std::optional<Embedding> two = placer.place(active(job), 2);
  ASSERT_TRUE(two);
  ASSERT_THAT(two->edges, SizeIs(2));
  EXPECT_EQ(cluster.link(two->edges[0].front()).id, "s0-r0");
  EXPECT_EQ(cluster.link(two->edges[0].back()).id, "r0-s1");
  EXPECT_EQ(cluster.link(two->edges[1].front()).id, "s1-r0");
  EXPECT_EQ(cluster.link(two->edges[1].back()).id, "r0-s0");
  placer.take(job, *two);
  EXPECT_DOUBLE_EQ(placer.free().left(*cluster.find_link("s0-r0")), 6);
  EXPECT_DOUBLE_EQ(placer.free().left(*cluster.find_link("r0-s0")), 6);
}

TEST(RingPlacement, NeighboursOnOneServerUseNoLink) {
  const model::Cluster cluster = tree_cluster({.racks = 1, .servers_per_rack = 2, .gpus = 4, .server_bandwidth = 1});
  for (const RingStyle style : {RingStyle::kGreedy, RingStyle::kTopology}) {
    RingPlacer placer(cluster, style);
    Job job = rigid_job(cluster, "a", 4);
    job.edge_bandwidth = {100};
    const std::optional<Embedding> ring = placer.place(active(job), 4);
    ASSERT_TRUE(ring);
    EXPECT_THAT(ring->edges, ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), IsEmpty()));
  }
}

TEST(RingPlacement, AServerWhoseLinksAreFullIsPassedOver) {
  const model::Cluster cluster = tree_cluster({.racks = 1, .servers_per_rack = 4, .gpus = 2, .server_bandwidth = 10});
  for (const RingStyle style : {RingStyle::kGreedy, RingStyle::kTopology}) {
    RingPlacer placer(cluster, style);
    Job heavy = rigid_job(cluster, "heavy", 2);
    heavy.edge_bandwidth = {8};
    placer.take(heavy, placer.embed(heavy, {ServerId(0), ServerId(1)}));
    Job job = rigid_job(cluster, "a", 4);
    job.edge_bandwidth = {5};
    EXPECT_THAT(servers(placer.place(active(job), 4)), ElementsAre(2, 2, 3, 3));
    job.edge_bandwidth = {2};
    EXPECT_THAT(servers(placer.place(active(job), 5)), SizeIs(5));
    job.edge_bandwidth = {5};
    EXPECT_FALSE(placer.place(active(job), 5));
  }
}

TEST(RingPlacement, AFullUplinkKeepsRingsInsideTheirRacks) {
  const model::Cluster cluster =
      tree_cluster({.racks = 2, .servers_per_rack = 3, .gpus = 1, .server_bandwidth = 10, .uplink_bandwidth = 4});
  for (const RingStyle style : {RingStyle::kGreedy, RingStyle::kTopology}) {
    RingPlacer placer(cluster, style);
    occupy(placer, 0, 1);
    Job job = rigid_job(cluster, "a", 3);
    job.edge_bandwidth = {5};
    EXPECT_THAT(servers(placer.place(active(job), 3)), ElementsAre(3, 4, 5));
    EXPECT_FALSE(placer.place(active(job), 4));
  }
}

TEST(RingPlacement, ARackLimitHoldsForTheGreedyToo) {
  const model::Cluster cluster = tree_cluster({.racks = 2, .servers_per_rack = 2, .gpus = 2});
  for (const RingStyle style : {RingStyle::kGreedy, RingStyle::kTopology}) {
    RingPlacer placer(cluster, style);
    occupy(placer, 0, 1);
    Job job = rigid_job(cluster, "a", 4);
    job.max_racks = 1;
    job.max_racks_s = 600;
    EXPECT_THAT(servers(placer.place(active(job), 4)), ElementsAre(2, 2, 3, 3));
    EXPECT_FALSE(placer.place(active(job), 5));
    ActiveJob waited = active(job);
    waited.waiting_s = 600;
    EXPECT_THAT(servers(placer.place(waited, 5)), SizeIs(5));
  }
}

/// Any ring of `workers` on any servers: the order does not matter in a tree, where a ring in depth-first order loads least.
bool some_ring_fits(RingPlacer& placer, const Job& job, int workers) {
  const std::size_t servers = placer.cluster().num_servers();
  for (std::size_t mask = 1; mask < (std::size_t{1} << servers); ++mask) {
    std::vector<ServerId> ring;
    int left = workers;
    for (std::size_t s = 0; s < servers; ++s) {
      if ((mask >> s & 1) == 0) {
        continue;
      }
      const ServerId server = ServerId::from_index(s);
      const int later = std::popcount(mask >> (s + 1));
      const int here = std::min(left - later, placer.free().workers_that_fit(server, job.demand, left));
      ring.insert(ring.end(), static_cast<std::size_t>(std::max(0, here)), server);
      left -= std::max(0, here);
      if (here <= 0) {
        left = -1;
        break;
      }
    }
    if (left == 0 && placer.fits(job, placer.embed(job, ring))) {
      return true;
    }
  }
  return false;
}

TEST(RingPlacement, ByTopologyARingIsFoundInATreeExactlyWhereOneExists) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  int found = 0;
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const model::Cluster cluster = tree_cluster({.racks = static_cast<int>(rng.uniform_int(1, 4)),
                                                 .servers_per_rack = static_cast<int>(rng.uniform_int(1, 3)),
                                                 .gpus = static_cast<double>(rng.uniform_int(1, 4)),
                                                 .server_bandwidth = 10,
                                                 .uplink_bandwidth = 14});
    RingPlacer placer(cluster, RingStyle::kTopology);
    for (int k = 0; k < 8; ++k) {
      Job job = rigid_job(cluster, "a", static_cast<int>(rng.uniform_int(1, 6)));
      job.edge_bandwidth = {rng.uniform(0.5, 9)};
      const bool exists = some_ring_fits(placer, job, job.workers);
      const std::optional<Embedding> ring = placer.place(active(job), job.workers);
      ASSERT_EQ(ring.has_value(), exists) << "trial " << trial << ", job " << k;
      (ring ? found : refused) += 1;
      if (ring) {
        ASSERT_TRUE(placer.fits(job, *ring));
        placer.take(job, *ring);
      }
    }
  }
  EXPECT_GT(found, 500);
  EXPECT_GT(refused, 500);
}

TEST(RingPlacement, BothStylesGiveOnlyRingsThatFitOnAnyCluster) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  base::Rng rng(seed);
  int placed = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const model::Cluster cluster = random_cluster(rng);
    RingPlacer placer(cluster, trial % 2 == 0 ? RingStyle::kGreedy : RingStyle::kTopology);
    for (int k = 0; k < 10; ++k) {
      const Job job = random_job(rng, cluster, k, 60, 10);
      const std::optional<Embedding> ring = placer.place(active(job), job.workers);
      if (ring) {
        ASSERT_EQ(ring->workers(), job.workers);
        ASSERT_TRUE(placer.fits(job, *ring)) << "trial " << trial << ", job " << k;
        placer.take(job, *ring);
        ++placed;
      }
    }
  }
  EXPECT_GT(placed, 300);
}

TEST(RoomIndex, FindsTheSameServersAsALookAtEachOfThem) {
  base::Rng rng(7);
  for (int trial = 0; trial < 100; ++trial) {
    const model::Cluster cluster = random_cluster(rng);
    RingPlacer placer(cluster, RingStyle::kGreedy);
    for (int k = 0; k < 10; ++k) {
      const Job job = random_job(rng, cluster, k, 60, 10);
      for (std::size_t from = 0; from <= cluster.num_servers(); ++from) {
        std::size_t expected = from;
        while (expected < cluster.num_servers() && placer.free().workers_that_fit(ServerId::from_index(expected), job.demand, 1) == 0) {
          ++expected;
        }
        const ServerId found = placer.rooms().next(from, job.demand);
        ASSERT_EQ(found.valid() ? found.index() : cluster.num_servers(), expected);
      }
      if (const std::optional<Embedding> ring = placer.place(active(job), job.workers)) {
        placer.take(job, *ring);
      }
    }
  }
}

}  // namespace
}  // namespace maypole::sched
