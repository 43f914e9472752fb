// SPDX-License-Identifier: Apache-2.0
#pragma once

// A Gaussian process over the unit cube: what a few noisy measurements say about points that were not measured.
//
// Kernel: Matern 5/2 with one length a dimension, values in units of their spread, plus independent noise. Lengths and noise are those
// of the largest marginal likelihood, by coordinate ascent over a grid of powers of two. Cost of a fit: some 40 factorisations of n x n.

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace maypole::overlap {

inline constexpr std::size_t kCubeDimensions = 3;
using CubePoint = std::array<double, kCubeDimensions>;

class GaussianProcess {
 public:
  /// Needs at least one point; points may repeat.
  void fit(std::span<const CubePoint> points, std::span<const double> values);

  /// In units of the values' spread, from their mean.
  struct Prediction {
    double mean = 0;
    double deviation = 0;  // of the function itself, without the noise of a measurement
  };
  [[nodiscard]] Prediction at(const CubePoint& point) const;
  /// Standard deviation of the noise, in units of the values' spread.
  [[nodiscard]] double noise() const;

 private:
  struct Hyper {
    CubePoint length = {0.5, 0.5, 0.5};
    double noise = 0.01;  // variance
  };
  [[nodiscard]] double factorise(const Hyper& hyper);  // returns the log likelihood
  [[nodiscard]] double kernel(const CubePoint& a, const CubePoint& b) const;

  std::vector<CubePoint> points_;
  std::vector<double> values_;  // standardised
  Hyper hyper_;
  std::vector<double> factor_;   // lower triangle of the Cholesky factor, column-major n x n
  std::vector<double> weights_;  // inverse covariance times values
};

}  // namespace maypole::overlap
