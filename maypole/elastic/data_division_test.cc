// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/data_division.h"

#include "maypole/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace maypole::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::size_t> share_sizes(std::size_t num_samples, int num_ranks) {
  std::vector<std::size_t> sizes;
  std::size_t next = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const SampleRange share = share_of(num_samples, num_ranks, rank);
    EXPECT_EQ(share.begin, next);
    next = share.end;
    sizes.push_back(share.size());
  }
  EXPECT_EQ(next, num_samples);
  return sizes;
}

std::vector<std::size_t> batch_sizes(std::size_t num_samples, std::size_t batch_size, std::size_t max_workers) {
  const DataDivision division = *DataDivision::make(num_samples, batch_size, max_workers);
  std::vector<std::size_t> sizes;
  std::size_t next = 0;
  for (std::size_t b = 0; b < division.num_batches(); ++b) {
    EXPECT_EQ(division.batch(b).begin, next);
    next = division.batch(b).end;
    sizes.push_back(division.batch(b).size());
  }
  EXPECT_EQ(next, num_samples);
  return sizes;
}

TEST(DataDivisionTest, SharesDifferByAtMostOneSample) {
  EXPECT_THAT(share_sizes(64, 3), ElementsAre(22, 21, 21));
  EXPECT_THAT(share_sizes(64, 4), ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(share_sizes(7, 5), ElementsAre(2, 2, 1, 1, 1));
  EXPECT_THAT(share_sizes(5, 1), ElementsAre(5));
}

TEST(DataDivisionTest, WhatIsLeftIsABatchOfItsOwnWhereAllGetASample) {
  EXPECT_THAT(batch_sizes(128, 64, 8), ElementsAre(64, 64));
  EXPECT_THAT(batch_sizes(136, 64, 8), ElementsAre(64, 64, 8));
}

TEST(DataDivisionTest, WhatIsTooLittleForAllBelongsToTheLastBatch) {
  EXPECT_THAT(batch_sizes(135, 64, 8), ElementsAre(64, 71));
  EXPECT_THAT(batch_sizes(20, 64, 8), ElementsAre(20));
}

TEST(DataDivisionTest, NoWorkerEverHasAShareOfNothing) {
  for (std::size_t num_samples = 8; num_samples < 200; ++num_samples) {
    for (const std::size_t size : batch_sizes(num_samples, 16, 8)) {
      for (int num_ranks = 1; num_ranks <= 8; ++num_ranks) {
        for (const std::size_t share : share_sizes(size, num_ranks)) {
          EXPECT_GT(share, 0U);
        }
      }
    }
  }
}

TEST(DataDivisionTest, FewerSamplesThanWorkersAreRefused) {
  EXPECT_THAT(base::message(DataDivision::make(100, 4, 8).status()), HasSubstr("a batch of 4 samples cannot be divided over 8 workers"));
  EXPECT_THAT(base::message(DataDivision::make(3, 16, 8).status()), HasSubstr("a data set of 3 samples"));
}

}  // namespace
}  // namespace maypole::elastic
