// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/fusion_search.h"

#include "maypole/base/check.h"
#include "maypole/base/rng.h"
#include "maypole/base/status.h"
#include "maypole/overlap/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace maypole::overlap {
namespace {

constexpr std::size_t kFirstSamples = 5;  // of bayes, before the model is asked
constexpr std::size_t kFewest = 8;        // samples before it may end
constexpr double kWorthIt = 0.02;         // expected improvement, in units of the spread, below which the search ends
constexpr double kMargin = 0.01;          // xi, in the same units
constexpr std::size_t kRandomCandidates = 400;
constexpr std::size_t kNearCandidates = 100;  // around the best so far
constexpr std::size_t kGridLine = 12;         // points of a lattice of one size
constexpr std::size_t kGridEdge = 4;          // points along each edge of a lattice of three

/// What all searches share: the scale, and what was tried.
class Trials : public FusionSearch {
 public:
  Trials(const SearchOptions& options, std::string_view stream) : options_(options), rng_(options.seed, stream) {
    for (const KnownSizes& known : options.known) {
      points_.push_back(to_cube(known.sizes));
      values_.push_back(known.seconds);
    }
  }

  std::optional<FusionSizes> ask() final {
    const std::size_t samples = points_.size() - options_.known.size();
    if (samples == options_.most_samples) {
      return std::nullopt;
    }
    std::optional<CubePoint> point = samples == 0 && options_.start ? to_cube(*options_.start) : next();
    if (!point) {
      return std::nullopt;
    }
    if (!options_.joint) {
      *point = {(*point)[1], (*point)[1], (*point)[1]};
    }
    asked_ = point;
    return to_sizes(*point);
  }

  void tell(double seconds) final {
    MAYPOLE_CHECK(asked_.has_value());
    points_.push_back(*asked_);
    values_.push_back(seconds);
    asked_.reset();
  }

  FusionSizes best() const override {
    MAYPOLE_CHECK(!points_.empty());
    return to_sizes(points_[static_cast<std::size_t>(std::ranges::min_element(values_) - values_.begin())]);
  }

 protected:
  [[nodiscard]] virtual std::optional<CubePoint> next() = 0;

  [[nodiscard]] CubePoint random_point() { return {rng_.uniform(), rng_.uniform(), rng_.uniform()}; }

  [[nodiscard]] FusionSizes to_sizes(const CubePoint& point) const {
    const auto size = [&](double at) { return options_.smallest * std::pow(options_.largest / options_.smallest, at); };
    return {size(point[0]), size(point[1]), size(point[2])};
  }

  [[nodiscard]] CubePoint to_cube(const FusionSizes& sizes) const {
    const auto at = [&](double size) {
      return std::clamp(std::log(std::max(size, 1.0) / options_.smallest) / std::log(options_.largest / options_.smallest), 0.0, 1.0);
    };
    return {at(sizes.first_group), at(sizes.group), at(sizes.split)};
  }

  SearchOptions options_;
  base::Rng rng_;
  std::vector<CubePoint> points_;
  std::vector<double> values_;
  std::optional<CubePoint> asked_;
};

class RandomSearch final : public Trials {
 public:
  explicit RandomSearch(const SearchOptions& options) : Trials(options, "random") {}

 private:
  std::optional<CubePoint> next() override { return random_point(); }
};

class GridSearch final : public Trials {
 public:
  explicit GridSearch(const SearchOptions& options) : Trials(options, "grid") {
    if (!options.joint) {
      for (std::size_t i = 0; i < kGridLine; ++i) {
        const double at = static_cast<double>(i) / static_cast<double>(kGridLine - 1);
        lattice_.push_back({at, at, at});
      }
    } else {
      const auto at = [](std::size_t i) { return static_cast<double>(i) / static_cast<double>(kGridEdge - 1); };
      for (std::size_t i = 0; i < kGridEdge * kGridEdge * kGridEdge; ++i) {
        lattice_.push_back({at(i % kGridEdge), at(i / kGridEdge % kGridEdge), at(i / kGridEdge / kGridEdge)});
      }
    }
    for (std::size_t i = lattice_.size(); i > 1; --i) {
      std::swap(lattice_[i - 1], lattice_[static_cast<std::size_t>(rng_.uniform_int(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }

 private:
  std::optional<CubePoint> next() override {
    if (lattice_.empty()) {
      return std::nullopt;
    }
    const CubePoint point = lattice_.back();
    lattice_.pop_back();
    return point;
  }

  std::vector<CubePoint> lattice_;
};

class BayesianSearch final : public Trials {
 public:
  explicit BayesianSearch(const SearchOptions& options) : Trials(options, "bayes"), offset_(random_point()) {}

  FusionSizes best() const override {
    MAYPOLE_CHECK(!points_.empty());
    GaussianProcess model;
    model.fit(points_, log_values());
    return to_sizes(points_[expected_best(model)]);
  }

 private:
  std::optional<CubePoint> next() override {
    if (points_.empty() || (options_.known.empty() && points_.size() < kFirstSamples)) {
      return spread_point(points_.size());
    }
    model_.fit(points_, log_values());
    const std::size_t incumbent = expected_best(model_);
    const double best = model_.at(points_[incumbent]).mean;
    CubePoint chosen = points_[incumbent];
    double most = -1;
    for (std::size_t i = 0; i < kRandomCandidates + kNearCandidates; ++i) {
      CubePoint candidate = random_point();
      if (i >= kRandomCandidates) {
        for (std::size_t d = 0; d < kCubeDimensions; ++d) {
          candidate[d] = std::clamp(points_[incumbent][d] + 0.2 * (candidate[d] - 0.5), 0.0, 1.0);
        }
      }
      if (!options_.joint) {
        candidate = {candidate[1], candidate[1], candidate[1]};
      }
      if (const double improvement = expected_improvement(model_.at(candidate), best); improvement > most) {
        most = improvement;
        chosen = candidate;
      }
    }
    if (most < kWorthIt && points_.size() >= kFewest) {
      return std::nullopt;
    }
    return chosen;
  }

  /// Log: iterations differ by factors, and a few very slow ones must not hide the rest.
  [[nodiscard]] std::vector<double> log_values() const {
    std::vector<double> values;
    for (const double value : values_) {
      values.push_back(std::log(std::max(value, std::numeric_limits<double>::min())));
    }
    return values;
  }

  /// Which of the points tried the model expects to be best; noise may have favoured another.
  [[nodiscard]] std::size_t expected_best(const GaussianProcess& model) const {
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (const double mean = model.at(points_[i]).mean; mean < least) {
        least = mean;
        best = i;
      }
    }
    return best;
  }

  static double expected_improvement(const GaussianProcess::Prediction& prediction, double best) {
    if (prediction.deviation < 1e-9) {
      return 0;
    }
    const double gain = best - prediction.mean - kMargin;
    const double z = gain / prediction.deviation;
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
    const double below = 0.5 * std::erfc(-z / std::numbers::sqrt2);
    return gain * below + prediction.deviation * density;
  }

  /// Points that lie evenly in the cube from the first few on: multiples of the powers of the inverse plastic number, shifted by the
  /// seed.
  [[nodiscard]] CubePoint spread_point(std::size_t i) const {
    constexpr std::array kSteps = {0.8191725133961645, 0.6710436067037893, 0.5497004779019703};
    CubePoint point = offset_;
    for (std::size_t d = 0; d < kCubeDimensions; ++d) {
      point[d] += static_cast<double>(i) * kSteps[d];
      point[d] -= std::floor(point[d]);
    }
    return point;
  }

  GaussianProcess model_;
  CubePoint offset_;
};

}  // namespace

FusionOptions FusionSizes::options(std::size_t block_bytes) const {
  return {.block_bytes = block_bytes,
          .group_bytes = static_cast<std::size_t>(group),
          .first_group_bytes = static_cast<std::size_t>(first_group),
          .split_bytes = static_cast<std::size_t>(split)};
}

absl::StatusOr<std::unique_ptr<FusionSearch>> make_fusion_search(std::string_view name, const SearchOptions& options) {
  if (options.smallest < 1 || options.largest <= options.smallest) {
    return base::error(absl::StatusCode::kInvalidArgument, "sizes reach from {} to {} bytes: they must ascend from one on",
                       options.smallest, options.largest);
  }
  if (name == "bayes") {
    return std::make_unique<BayesianSearch>(options);
  }
  if (name == "random") {
    return std::make_unique<RandomSearch>(options);
  }
  if (name == "grid") {
    return std::make_unique<GridSearch>(options);
  }
  return base::error(absl::StatusCode::kInvalidArgument, "search '{}' is unknown; take one of bayes, random, grid", name);
}

}  // namespace maypole::overlap
