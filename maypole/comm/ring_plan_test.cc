// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/ring_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace maypole::comm {
namespace {

TEST(RingPlanTest, WhatARankSendsIsWhatTheNextOneReceivesInTheSameStep) {
  for (std::size_t p = 2; p <= 9; ++p) {
    for (std::size_t r = 0; r < p; ++r) {
      const RingPosition here{r, p};
      const RingPosition next{here.next(), p};
      for (std::size_t s = 0; s < here.num_steps(); ++s) {
        EXPECT_EQ(here.reduce_scatter_send(s), next.reduce_scatter_receive(s));
        EXPECT_EQ(here.all_gather_send(s), next.all_gather_receive(s));
        EXPECT_EQ(here.reduce_scatter_receive_step(here.reduce_scatter_receive(s)), s);
        EXPECT_EQ(here.all_gather_receive_step(here.all_gather_receive(s)), s);
      }
    }
  }
}

// Carries the plan out on sets: which ranks' parts are in the partial sum that each rank holds of each chunk.
TEST(RingPlanTest, EveryChunkArrivesAtItsOwnerWithEveryPartExactlyOnce) {
  for (std::size_t p = 2; p <= 9; ++p) {
    std::vector<std::vector<std::multiset<std::size_t>>> parts(p, std::vector<std::multiset<std::size_t>>(p));
    for (std::size_t r = 0; r < p; ++r) {
      for (std::size_t c = 0; c < p; ++c) {
        parts[r][c] = {r};
      }
    }
    for (std::size_t s = 0; s + 1 < p; ++s) {
      const auto before = parts;
      for (std::size_t r = 0; r < p; ++r) {
        const RingPosition at{r, p};
        const std::size_t c = at.reduce_scatter_receive(s);
        parts[r][c].insert(before[at.previous()][c].begin(), before[at.previous()][c].end());
      }
    }
    std::multiset<std::size_t> all;
    for (std::size_t r = 0; r < p; ++r) {
      all.insert(r);
    }
    for (std::size_t r = 0; r < p; ++r) {
      EXPECT_EQ(parts[r][r], all) << "owner " << r << " of " << p;
    }
  }
}

TEST(RingPlanTest, EveryRankHoldsEveryChunkAfterTheAllGather) {
  for (std::size_t p = 2; p <= 9; ++p) {
    std::vector<std::set<std::size_t>> held(p);
    for (std::size_t r = 0; r < p; ++r) {
      held[r] = {r};
    }
    for (std::size_t s = 0; s + 1 < p; ++s) {
      const auto before = held;
      for (std::size_t r = 0; r < p; ++r) {
        const RingPosition at{r, p};
        ASSERT_TRUE(before[at.previous()].contains(at.all_gather_receive(s)));
        held[r].insert(at.all_gather_receive(s));
      }
    }
    for (const auto& chunks : held) {
      EXPECT_EQ(chunks.size(), p);
    }
  }
}

TEST(RingPlanTest, SegmentsTileEachChunkInOrderAndNeverCrossABlock) {
  for (const std::size_t count : {0u, 1u, 3u, 64u, 1000u, 1001u}) {
    for (const std::size_t block : {1u, 5u, 64u, 4096u}) {
      for (const std::size_t p : {1u, 2u, 3u, 4u}) {
        for (const std::size_t segment : {1u, 7u, 100u}) {
          const model::BlockRange range{0, count, block};
          const ChunkMap map = ChunkMap::shared(range, p, segment);
          std::vector<int> times(count, 0);
          for (std::size_t c = 0; c < p; ++c) {
            for (std::size_t i = 0; i < map.num_segments(c); ++i) {
              const model::Interval part = map.segment(c, i);
              ASSERT_LT(part.begin, part.end);
              ASSERT_LE(part.size(), segment);
              ASSERT_EQ(part.begin / block, (part.end - 1) / block);
              for (std::size_t e = part.begin; e < part.end; ++e) {
                ++times[e];
                const model::Interval chunk = range.chunk_at(e / block, c, p);
                ASSERT_TRUE(chunk.begin <= e && e < chunk.end);
              }
            }
          }
          EXPECT_THAT(times, ::testing::Each(1));
        }
      }
    }
  }
}

TEST(RingPlanTest, ARootedMapGivesEverythingToTheRoot) {
  const ChunkMap map = ChunkMap::rooted(10, 2, 4, 4);
  EXPECT_EQ(map.num_segments(0), 0u);
  ASSERT_EQ(map.num_segments(2), 3u);
  EXPECT_EQ(map.segment(2, 2), (model::Interval{8, 10}));
}

}  // namespace
}  // namespace maypole::comm
