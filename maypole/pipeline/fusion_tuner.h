// SPDX-License-Identifier: Apache-2.0
#pragma once

// Chooses a model's groups while it trains (the tuner of DeAR, mended: docs/planning.md): some iterations, what they took on every rank,
// other groups. Rank 0 decides and the others follow, so that ranks whose clocks or processors differ still have equal groups in the same
// step.
//
//     iteration() ... -> a window is full -> pack() -> [sum over ranks] -> rank 0: decide() -> [broadcast] -> follow() -> other groups
//
//   auto    observes the groups that the model has, plans from what it saw, tries the plan, plans again from what that showed, refines
//           by Bayesian search around the best plan while a sample may still gain, and keeps what was best; between the first groups
//           and a narrow winner both are measured again. It ends after at most kMostIterations. Afterwards it watches: when the link
//           or computing has changed lastingly by more than kDrift it begins again from the groups it has.
//   plan    observes, and takes the plan without trying it
//   bayes, random, grid   overlap/fusion_search.h from the groups that the model has on
//
// Pure: no clock, no threads.

#include "maypole/overlap/fusion_plan.h"
#include "maypole/overlap/fusion_search.h"
#include "maypole/overlap/observed_iteration.h"
#include "maypole/overlap/schedule.h"
#include "maypole/pipeline/report.h"
#include "maypole/pipeline/tuning_window.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace maypole::pipeline {

struct TunerOptions {
  std::string search;  // auto, plan, bayes, random, grid
  overlap::PlanRequest model;
  overlap::FusionPlan start;  // the plan that the model has
  TunedFor tuned_for = {};    // auto: the start was tuned for this, an earlier run says; zeros: it was not
  std::string schedule;
  overlap::UpdateMode update = overlap::UpdateMode::kReplicated;
  double start_s = 0;  // of one phase of one group, beside its bytes
  int num_ranks = 1;
  int rank = 0;
};

class FusionTuner {
 public:
  /// Errors: an unknown search or schedule.
  [[nodiscard]] static absl::StatusOr<FusionTuner> make(TunerOptions options);

  /// For notes of single tensors, while window().observing().
  [[nodiscard]] TuningWindow& window() { return window_; }
  /// An iteration took so long on this rank. True when a window is full: pack() is then to be summed over ranks and decided on.
  [[nodiscard]] bool iteration(const TunedIteration& iteration) { return !ended_ && window_.add(iteration); }
  [[nodiscard]] std::vector<double> pack() const { return window_.pack(); }

  /// On rank 0, from the sum: what all ranks are to follow.
  [[nodiscard]] std::vector<std::byte> decide(std::span<const double> sums);
  /// Bytes of what decide() returns.
  [[nodiscard]] std::size_t order_bytes() const;
  /// On every rank: begins the next window. Returns the groups from now on; none: they stay.
  [[nodiscard]] absl::StatusOr<std::optional<overlap::FusionPlan>> follow(std::span<const std::byte> order);

  /// No further window will be full.
  [[nodiscard]] bool ended() const { return ended_; }
  /// What was tried and chosen; texts and trials on rank 0 only.
  [[nodiscard]] const TuningReport& report() const { return report_; }

  static constexpr std::size_t kWarmUp = 3;  // iterations before the first window
  static constexpr std::size_t kSettling = 2;
  static constexpr std::size_t kWindow = 5;
  static constexpr std::size_t kMostRefinements = 4;
  static constexpr std::size_t kMostSamples = 8;  // of bayes, random, grid
  static constexpr std::size_t kMostIterations = 60;
  static constexpr std::size_t kWatched = 32;  // iterations in a window while nothing is tuned
  static constexpr std::size_t kLasting = 3;   // windows that must differ in a row
  static constexpr double kDrift = 1.5;

 private:
  enum class Order : std::uint8_t { kEnd, kObserve, kMeasure, kWatch };
  struct Trial {
    std::string what;
    Cuts cuts;
    std::optional<overlap::FusionSizes> sizes;
    std::vector<double> windows;  // seconds of an iteration
    TunedFor seen;                // of the last window
    [[nodiscard]] double seconds() const;
  };

  explicit FusionTuner(TunerOptions options);

  void begin_window(Order order);
  [[nodiscard]] std::vector<std::byte> order(Order next, const Cuts* cuts) const;
  [[nodiscard]] TunedFor tuned_for(const TuningWindow::Seen& seen) const;
  /// What a phase costs, from what was in motion in the trials so far.
  [[nodiscard]] overlap::PhaseCost phase() const;
  [[nodiscard]] absl::StatusOr<overlap::FusionPlan> plan() const;
  std::vector<std::byte> observed();
  std::vector<std::byte> measured();
  std::vector<std::byte> refine();
  void begin_search();
  [[nodiscard]] bool is_new(const Cuts& cuts) const;
  std::vector<std::byte> search_further();
  std::vector<std::byte> watched(const TunedFor& found);
  std::vector<std::byte> try_next(Trial trial);
  std::vector<std::byte> try_again(std::size_t trial);
  /// Ends the search with the best trial, where need be after measuring it and the first one again.
  std::vector<std::byte> finish();
  std::vector<std::byte> settle(std::size_t trial);
  void begin_anew(Cuts cuts);
  [[nodiscard]] bool nothing_to_gain() const;
  [[nodiscard]] std::size_t best() const;
  [[nodiscard]] overlap::FusionSizes sizes_of(const Cuts& cuts) const;

  TunerOptions options_;
  std::unique_ptr<overlap::Schedule> schedule_;
  std::vector<std::size_t> num_blocks_;  // [arena]
  double bytes_ = 0;                     // on the wire in one phase
  double memory_bytes_ = 0;
  TuningWindow window_;
  Order kind_ = Order::kObserve;  // of the window
  bool ended_ = false;
  TuningReport report_;

  // Of rank 0.
  std::unique_ptr<overlap::FusionSearch> search_;
  std::vector<Trial> trials_;
  TuningWindow::Seen observation_;
  std::size_t running_ = 0;  // the trial that is measured
  std::size_t refinements_ = 0;
  std::size_t without_gain_ = 0;           // refinements in a row
  std::optional<std::size_t> challenger_;  // is being measured again, against trial 0
  std::size_t drifted_ = 0;                // windows in a row
  std::size_t patience_ = kLasting;
  std::size_t iterations_ = 0;  // of windows and settling since the observation began
  std::string note_;            // why it began again
};

}  // namespace maypole::pipeline
