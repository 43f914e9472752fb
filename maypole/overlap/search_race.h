// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many samples a search for fusion sizes needs, over many seeds, where the iteration simulator stands for the training run.
//
// Every sample is the simulated iteration times 1 + noise (uniform); a search has arrived with the first sample whose iteration, without
// the noise, is within `tolerance` of the best of a fine lattice of sizes.

#include "maypole/model/profile.h"
#include "maypole/overlap/fusion_search.h"
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/network_model.h"
#include "maypole/overlap/schedule.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace maypole::overlap {

struct RaceOptions {
  std::size_t workers = 64;
  bool joint = true;          // three sizes, else one for all
  double smallest = 1 << 20;  // bytes: DeAR's tuner searches 1 to 256 MB
  double largest = 256 << 20;
  double noise = 0.01;
  double tolerance = 0.02;
  std::size_t seeds = 20;
  std::size_t most_samples = 40;
};

/// The samples of each seed until the search arrived; none where it ended before.
using RaceResult = std::vector<std::optional<std::size_t>>;

/// One model on one network under one schedule; the lattice is computed once.
class SearchRace {
 public:
  /// Borrows the profile. Errors: unknown schedule, impossible network.
  [[nodiscard]] static absl::StatusOr<SearchRace> make(const model::Profile& profile, const Network& network, std::string_view schedule,
                                                       const RaceOptions& options);
  [[nodiscard]] absl::StatusOr<RaceResult> run(std::string_view search) const;
  /// Of the lattice, seconds.
  [[nodiscard]] double best_s() const { return best_s_; }

 private:
  SearchRace(const model::Profile& profile, const RaceOptions& options) : profile_(&profile), options_(options) {}
  const model::Profile* profile_;
  RaceOptions options_;
  IterationSetting setting_;
  std::shared_ptr<const Schedule> schedule_;  // shared: a race may be copied
  double best_s_ = 0;
};

/// The middle of the samples, one that never arrived counting as more than any; none where fewer than half arrived.
[[nodiscard]] std::optional<std::size_t> median_samples(RaceResult result);

}  // namespace maypole::overlap
