// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/utility.h"

#include <algorithm>
#include <cmath>

namespace maypole::model {

std::string_view name_of(UtilityKind kind) {
  switch (kind) {
    case UtilityKind::kSqrt:
      return "sqrt";
    case UtilityKind::kLog:
      return "log";
    case UtilityKind::kLinear:
      return "linear";
    case UtilityKind::kEnergy:
      return "energy";
    case UtilityKind::kSigmoid:
      return "sigmoid";
    case UtilityKind::kDeadline:
      return "deadline";
  }
  return "?";
}

double Utility::value(double progress, double late_progress) const {
  switch (kind) {
    case UtilityKind::kSqrt:
      return std::sqrt(progress);
    case UtilityKind::kLog:
      return std::log1p(progress);
    case UtilityKind::kLinear:
      return progress;
    case UtilityKind::kEnergy: {
      const double peak = cost > 0 ? 1 / (2 * cost) : progress;
      const double k = std::min(progress, peak);
      return k - cost * k * k;
    }
    case UtilityKind::kSigmoid: {
      // The exponential is never above 1, so far below the inflection nothing overflows and the smallest values keep their digits.
      const double x = sensitivity * (progress - expected);
      const double e = std::exp(-std::abs(x));
      return x >= 0 ? 1 / (1 + e) : e / (1 + e);
    }
    case UtilityKind::kDeadline: {
      const double on_time = std::clamp(progress - late_progress, 0.0, work);  // the difference of two sums may round below 0
      const double behind = std::min(late_progress, work - on_time);
      return (on_time + late * behind) / work;
    }
  }
  return 0;
}

}  // namespace maypole::model
