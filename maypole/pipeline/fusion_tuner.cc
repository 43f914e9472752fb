// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/fusion_tuner.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <algorithm>
#include <utility>

namespace maypole::pipeline {

absl::StatusOr<FusionTuner> FusionTuner::make(std::string_view search, const overlap::FusionOptions& fusion, std::size_t bytes) {
  overlap::SearchOptions options;
  options.smallest = static_cast<double>(fusion.block_bytes);
  options.largest = static_cast<double>(std::max(bytes, 2 * fusion.block_bytes));
  const auto within = [&](std::size_t size) { return std::clamp(static_cast<double>(size), options.smallest, options.largest); };
  options.start = overlap::FusionSizes{within(fusion.first_group_bytes), within(fusion.group_bytes), within(fusion.split_bytes)};
  options.most_samples = kMostSamples;
  MAYPOLE_ASSIGN_OR_RETURN(std::unique_ptr<overlap::FusionSearch> made, overlap::make_fusion_search(search, options));
  return FusionTuner(std::move(made), fusion.block_bytes);
}

FusionTuner::FusionTuner(std::unique_ptr<overlap::FusionSearch> search, std::size_t block_bytes)
    : search_(std::move(search)), block_bytes_(block_bytes) {
  (void)search_->ask();  // the sizes that the model has
}

bool FusionTuner::iteration(double seconds) {
  if (ended_ || settled_++ < kSettling) {
    return false;
  }
  window_.push_back(seconds);
  return window_.size() == kWindow;
}

double FusionTuner::window_s() const {
  MAYPOLE_CHECK_EQ(window_.size(), kWindow);
  std::vector<double> sorted = window_;
  std::ranges::sort(sorted);
  return sorted[kWindow / 2];
}

std::optional<overlap::FusionOptions> FusionTuner::decide(double average_s) {
  window_.clear();
  settled_ = 0;
  search_->tell(average_s);
  if (const std::optional<overlap::FusionSizes> sizes = search_->ask()) {
    return sizes->options(block_bytes_);
  }
  ended_ = true;
  return search_->best().options(block_bytes_);
}

}  // namespace maypole::pipeline
