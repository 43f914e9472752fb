// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/gaussian_process.h"

#include "maypole/base/check.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::overlap {
namespace {

constexpr std::array kLengths = {0.0625, 0.125, 0.25, 0.5, 1.0, 2.0};
constexpr std::array kNoises = {1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1};
constexpr int kAscents = 2;

}  // namespace

double GaussianProcess::kernel(const CubePoint& a, const CubePoint& b) const {
  double squared = 0;
  for (std::size_t d = 0; d < kCubeDimensions; ++d) {
    const double distance = (a[d] - b[d]) / hyper_.length[d];
    squared += distance * distance;
  }
  const double scaled = std::sqrt(5 * squared);
  return (1 + scaled + scaled * scaled / 3) * std::exp(-scaled);
}

double GaussianProcess::factorise(const Hyper& hyper) {
  hyper_ = hyper;
  const auto n = static_cast<Eigen::Index>(points_.size());
  Eigen::MatrixXd covariance(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j <= i; ++j) {
      covariance(i, j) = kernel(points_[static_cast<std::size_t>(i)], points_[static_cast<std::size_t>(j)]);
    }
    covariance(i, i) += hyper.noise;
  }
  const Eigen::LLT<Eigen::MatrixXd, Eigen::Lower> solver(covariance);
  if (solver.info() != Eigen::Success) {
    return -std::numeric_limits<double>::infinity();
  }
  const Eigen::Map<const Eigen::VectorXd> values(values_.data(), n);
  const Eigen::VectorXd weights = solver.solve(values);
  const Eigen::MatrixXd factor = solver.matrixL();
  factor_.assign(factor.data(), factor.data() + factor.size());
  weights_.assign(weights.data(), weights.data() + weights.size());
  return -0.5 * values.dot(weights) - factor.diagonal().array().log().sum();
}

void GaussianProcess::fit(std::span<const CubePoint> points, std::span<const double> values) {
  MAYPOLE_CHECK(!points.empty() && points.size() == values.size());
  points_.assign(points.begin(), points.end());
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) {
    mean += value / count;
  }
  double variance = 0;
  for (const double value : values) {
    variance += (value - mean) * (value - mean) / count;
  }
  const double spread = variance > 0 ? std::sqrt(variance) : 1;
  values_.clear();
  for (const double value : values) {
    values_.push_back((value - mean) / spread);
  }
  Hyper best = hyper_;
  double most_likely = factorise(best);
  const auto consider = [&](const Hyper& hyper) {
    if (const double likelihood = factorise(hyper); likelihood > most_likely) {
      most_likely = likelihood;
      best = hyper;
    }
  };
  for (int ascent = 0; ascent < kAscents; ++ascent) {
    for (std::size_t d = 0; d < kCubeDimensions; ++d) {
      for (const double length : kLengths) {
        Hyper hyper = best;
        hyper.length[d] = length;
        consider(hyper);
      }
    }
    for (const double noise : kNoises) {
      Hyper hyper = best;
      hyper.noise = noise;
      consider(hyper);
    }
  }
  MAYPOLE_CHECK(std::isfinite(factorise(best)));
}

GaussianProcess::Prediction GaussianProcess::at(const CubePoint& point) const {
  const auto n = static_cast<Eigen::Index>(points_.size());
  Eigen::VectorXd covariance(n);
  double mean = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const double value = kernel(points_[i], point);
    covariance(static_cast<Eigen::Index>(i)) = value;
    mean += value * weights_[i];
  }
  const Eigen::Map<const Eigen::MatrixXd> factor(factor_.data(), n, n);
  factor.triangularView<Eigen::Lower>().solveInPlace(covariance);
  return {mean, std::sqrt(std::max(0.0, 1 - covariance.squaredNorm()))};
}

double GaussianProcess::noise() const { return std::sqrt(hyper_.noise); }

}  // namespace maypole::overlap
