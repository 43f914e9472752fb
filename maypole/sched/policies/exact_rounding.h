// SPDX-License-Identifier: Apache-2.0
#pragma once

// Integer choices near a solution of the master program: good ones found early are what makes branch and price short.

#include "maypole/sched/policies/exact_master.h"

namespace maypole::sched {

/// A column or none for every job, within all capacities.
struct ExactChoice {
  std::vector<std::optional<ExactColumn>> of_job;
  double gain = 0;
};

/// What servers and edges have left.
class ExactResidual {
 public:
  explicit ExactResidual(const ExactProblem& problem);
  void take(const ExactColumn& column, double sign = 1);
  [[nodiscard]] bool fits(const ExactColumn& column) const;
  /// Every column of the job that fits in what is left is in this box; in a tree all in it fit.
  [[nodiscard]] ExactBox box(int job) const;

 private:
  [[nodiscard]] int most_workers(int job, std::size_t server) const;

  const ExactProblem& problem_;
  std::vector<std::vector<double>> servers_;  // [server][resource]
  std::vector<double> edges_;
};

class ExactRounding {
 public:
  ExactRounding(const ExactProblem& problem, ExactPricer& pricer) : problem_(problem), pricer_(pricer) {}
  /// Takes the columns with the largest weights that fit, gives the other jobs the best that still fits at the prices, and improves.
  [[nodiscard]] ExactChoice round(const ExactMaster& master, bool pairs);
  /// Lets every job, then (if `pairs`) every pair of jobs, choose anew while all others stay, as long as that gains.
  void improve(ExactChoice& choice, bool pairs);

 private:
  [[nodiscard]] std::optional<ExactColumn> best_fitting(int job, const ExactPrices& prices, const ExactResidual& residual);

  const ExactProblem& problem_;
  ExactPricer& pricer_;
};

}  // namespace maypole::sched
