// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/search_race.h"

#include "maypole/model/status_testing.h"
#include "maypole/overlap/paper_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::overlap {
namespace {

TEST(SearchRace, CountsSamplesUntilASearchIsCloseToTheBestOfALattice) {
  const model::Profile profile = paper_profile("resnet50").value();
  const Network network = named_network("paper-10GbE").value();
  const SearchRace race = SearchRace::make(profile, network, "dear", {.joint = false, .seeds = 6}).value();
  EXPECT_GT(race.best_s(), 64 / 253.1);
  for (const char* search : {"bayes", "random", "grid"}) {
    const RaceResult result = race.run(search).value();
    ASSERT_EQ(result.size(), 6u);
    for (const auto& samples : result) {
      if (samples) {
        EXPECT_GE(*samples, 1u);
        EXPECT_LE(*samples, 40u);
      }
    }
    EXPECT_EQ(race.run(search).value(), result) << search;  // a seed is a seed
  }
  EXPECT_THAT(SearchRace::make(profile, network, "fifo", {}), model::FailsWith("schedule 'fifo' is unknown"));
}

TEST(SearchRace, MedianCountsASearchThatNeverArrivedAsTheSlowest) {
  EXPECT_EQ(median_samples({3, std::nullopt, 5}), std::optional<std::size_t>(5));
  EXPECT_EQ(median_samples({std::nullopt, std::nullopt, 5}), std::nullopt);
  EXPECT_EQ(median_samples({}), std::nullopt);
}

}  // namespace
}  // namespace maypole::overlap
