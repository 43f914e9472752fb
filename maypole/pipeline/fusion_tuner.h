// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tunes a model's groups while it trains (DeAR, section IV; dear.md 3): some iterations with sizes that a search proposes, what they took
// on average over ranks, the next sizes. Every rank runs the same search with the same seed and tells it the same averages, so all ask
// for the same sizes in the same step, and nobody has to be told.
//
//     iteration() ... -> a window is full -> [average over ranks] -> decide() -> other sizes, or the best ones at the end
//
// Pure: no clock, no threads.

#include "maypole/overlap/fusion_plan.h"
#include "maypole/overlap/fusion_search.h"

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace maypole::pipeline {

class FusionTuner {
 public:
  /// `search` is a name of overlap::make_fusion_search; it starts from `fusion`, the sizes that the model has. `bytes`: of its
  /// parameters; larger groups than that are not tried. Errors: an unknown search.
  [[nodiscard]] static absl::StatusOr<FusionTuner> make(std::string_view search, const overlap::FusionOptions& fusion, std::size_t bytes);

  /// An iteration took so long on this rank. True when a window is full: window_s() is then to be averaged over ranks and decided on.
  /// Cost of one sample: kSettling + kWindow iterations.
  [[nodiscard]] bool iteration(double seconds);
  /// Median of the full window.
  [[nodiscard]] double window_s() const;
  /// Takes the average over ranks, equal on all of them; returns the sizes from now on, none where they stay.
  [[nodiscard]] std::optional<overlap::FusionOptions> decide(double average_s);
  [[nodiscard]] bool ended() const { return ended_; }

  static constexpr std::size_t kSettling = 2;  // iterations that still run, in part, in the groups before
  static constexpr std::size_t kWindow = 5;
  static constexpr std::size_t kMostSamples = 8;

 private:
  FusionTuner(std::unique_ptr<overlap::FusionSearch> search, std::size_t block_bytes);

  std::unique_ptr<overlap::FusionSearch> search_;
  std::size_t block_bytes_;
  std::vector<double> window_;
  std::size_t settled_ = 0;
  bool ended_ = false;
};

}  // namespace maypole::pipeline
