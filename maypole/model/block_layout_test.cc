// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/block_layout.h"

#include <gtest/gtest.h>

namespace maypole::model {
namespace {

TEST(BlockLayoutTest, ChunksTileEveryBlockExactlyOnce) {
  for (const std::size_t count : {0u, 1u, 5u, 64u, 1000u}) {
    for (const std::size_t block : {1u, 7u, 64u, 2000u}) {
      for (const std::size_t ranks : {1u, 2u, 3u, 8u}) {
        const BlockRange range{0, count, block};
        std::size_t next = 0;
        std::size_t total = 0;
        for (std::size_t b = 0; b < range.num_blocks(); ++b) {
          for (std::size_t c = 0; c < ranks; ++c) {
            const Interval part = range.chunk_at(b, c, ranks);
            EXPECT_EQ(part.begin, next);
            next = part.end;
          }
        }
        EXPECT_EQ(next, count);
        for (std::size_t c = 0; c < ranks; ++c) {
          total += range.chunk_size(c, ranks);
        }
        EXPECT_EQ(total, count);
      }
    }
  }
}

TEST(BlockLayoutTest, OwnershipOfAnElementDoesNotDependOnTheRangeItIsLookedUpIn) {
  constexpr std::size_t kCount = 1000;
  constexpr std::size_t kBlock = 64;
  constexpr std::size_t kRanks = 3;
  std::vector<std::size_t> owner(kCount, kRanks);
  for (std::size_t c = 0; c < kRanks; ++c) {
    for (const Interval part : owned_parts({0, kCount}, kCount, kBlock, c, kRanks)) {
      for (std::size_t e = part.begin; e < part.end; ++e) {
        owner[e] = c;
      }
    }
  }
  for (std::size_t begin = 0; begin < kCount; begin += 37) {
    for (std::size_t c = 0; c < kRanks; ++c) {
      for (const Interval part : owned_parts({begin, begin + 37 < kCount ? begin + 37 : kCount}, kCount, kBlock, c, kRanks)) {
        for (std::size_t e = part.begin; e < part.end; ++e) {
          EXPECT_EQ(owner[e], c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace maypole::model
