// SPDX-License-Identifier: Apache-2.0
#pragma once

// Utilities: what a job is worth as a function mu_i of the progress made on it (GADGET section III-B and its experiments).
//
//   kind      value at progress k                                    concave
//   sqrt      weight * sqrt(k)                                       yes     excessive-training avoidance
//   log       weight * log(1 + k)                                    yes     proportional fairness; 1 + k keeps it at 0 from 0 on
//   linear    weight * k                                             yes
//   energy    weight * (k - cost * k^2), constant from its peak on   yes     energy with a quadratic cost, net of a linear gain
//   sigmoid   weight / (1 + exp(-sensitivity * (k - expected)))      no      the paper's experiment: lambda_1, lambda_2, lambda_3
//   deadline  weight * (k_on_time + late * k_late) / work            yes     progress made after the deadline is worth the share `late`
//
// All are non-decreasing. The paper's -c(k) for energy and log(k) are not (or are negative): `docs/scheduler.md` says why these stand here.

#include <string_view>

namespace maypole::model {

enum class UtilityKind { kSqrt, kLog, kLinear, kEnergy, kSigmoid, kDeadline };

[[nodiscard]] std::string_view name_of(UtilityKind kind);

struct Utility {
  UtilityKind kind = UtilityKind::kSqrt;
  double cost = 0;         // energy: c >= 0, in 1/progress
  double sensitivity = 0;  // sigmoid: lambda_2 > 0
  double expected = 0;     // sigmoid: lambda_3, progress at the inflection
  double deadline_s = 0;   // deadline: seconds since the start of time (not since arrival)
  double late = 0;         // deadline: in [0, 1]
  double work = 0;         // deadline: the progress that is worth `weight`; more is worth nothing more

  /// The worth of `progress` for weight 1. `late_progress` is the part of it made in slots that began at or after the deadline; only
  /// `deadline` looks at it. Defined for progress >= 0.
  [[nodiscard]] double value(double progress, double late_progress = 0) const;
  [[nodiscard]] bool concave() const { return kind != UtilityKind::kSigmoid; }
  bool operator==(const Utility&) const = default;
};

}  // namespace maypole::model
