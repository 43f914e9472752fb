// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/contention.h"

#include <algorithm>
#include <cmath>

namespace maypole::overlap {
namespace {

constexpr double kMost = 4;  // seconds of computing per second of the fastest link
constexpr int kSteps = 40;   // of the first scan
constexpr int kRefinements = 40;

double misfit(std::span<const MeasuredIteration> iterations, double s_per_byte) {
  double sum = 0;
  for (const MeasuredIteration& iteration : iterations) {
    IterationSetting setting = iteration.setting;
    setting.contention_s_per_byte = s_per_byte;
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
  double fastest = iterations.front().setting.phase.s_per_byte;
  for (const MeasuredIteration& iteration : iterations) {
    fastest = std::min(fastest, iteration.setting.phase.s_per_byte);
  }
  const double most = kMost * fastest;
  const double length = most / kSteps;
  double best = 0;
  double least = misfit(iterations, 0);
  for (int step = 1; step <= kSteps; ++step) {
    if (const double value = misfit(iterations, step * length); value < least) {
      least = value;
      best = step * length;
    }
  }
  double low = std::max(0.0, best - length);
  double high = std::min(most, best + length);
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
