// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/contention.h"

#include <algorithm>
#include <cmath>

namespace maypole::overlap {
namespace {

constexpr double kMost = 4;
constexpr int kSteps = 40;  // of the first scan
constexpr int kRefinements = 40;

double misfit(std::span<const MeasuredIteration> iterations, double contention) {
  double sum = 0;
  for (const MeasuredIteration& iteration : iterations) {
    IterationSetting setting = iteration.setting;
    setting.contention = contention;
    const double predicted_s = simulate(*iteration.schedule, iteration.groups, setting).iteration_s;
    const double error = std::log(predicted_s / iteration.measured_s);
    sum += error * error;
  }
  return sum;
}

}  // namespace

double fit_contention(std::span<const MeasuredIteration> iterations) {
  if (iterations.empty()) {
    return 0;
  }
  constexpr double kStep = kMost / kSteps;
  double best = 0;
  double least = misfit(iterations, 0);
  for (int step = 1; step <= kSteps; ++step) {
    if (const double value = misfit(iterations, step * kStep); value < least) {
      least = value;
      best = step * kStep;
    }
  }
  double low = std::max(0.0, best - kStep);
  double high = std::min(kMost, best + kStep);
  for (int refinement = 0; refinement < kRefinements; ++refinement) {  // the misfit has one valley in here
    const double third = (high - low) / 3;
    if (misfit(iterations, low + third) <= misfit(iterations, high - third)) {
      high -= third;
    } else {
      low += third;
    }
  }
  const double refined = (low + high) / 2;
  return misfit(iterations, refined) < least ? refined : best;  // where contention changes nothing, the least that fits
}

}  // namespace maypole::overlap
