// SPDX-License-Identifier: Apache-2.0
#pragma once

// Algorithm 2, last step: randomised rounding, and the factors of Theorem 8 by which it is judged.
//
//   beta^r = 1 + eps sqrt(2 Delta^r log |V_s|)      Delta^r = max over servers of the sum of kappa_i^2 over jobs that it may host
//   gamma  = 1 + eps sqrt(2 Delta   log |E_s|)      Delta   = max over links   of the sum of kappa_i^2 over jobs that may cross it
// The paper leaves eps open. Hoeffding's inequality gives the theorem's |V_s|^-4 with eps = the largest single demand over capacity (of
// the hosts and links that can hold it, so at most 1). V_s are the servers, E_s the limited links; the theorem wants |V_s| >= 3, so
// fewer count as 3.

#include "maypole/base/rng.h"
#include "maypole/sched/decision.h"
#include "maypole/sched/policies/gadget_paper_slot.h"

#include <optional>

namespace maypole::sched {

struct PaperFactors {
  double alpha = 0;
  std::vector<double> beta;  // [resource]
  double gamma = 0;
};

/// alpha = 1/3 and beta, gamma by the theorem.
[[nodiscard]] PaperFactors theorem_factors(const PaperSlot& slot, const std::vector<int>& sizes);

/// One drawing: a mapping or none for every job, and what it reaches: alpha = its utility over the augmented LP's optimum (1 where that is
/// 0), beta and gamma = the largest load over capacity.
struct PaperDrawing {
  std::vector<std::optional<model::Embedding>> embeddings;  // [job]
  double utility = 0;
  PaperFactors reached;
  int overloaded = 0;  // servers (per resource) and links whose load exceeds the capacity
};
[[nodiscard]] PaperDrawing measure_drawing(const PaperSlot& slot, const std::vector<int>& sizes,
                                           std::vector<std::optional<model::Embedding>> embeddings, double optimum);

struct PaperRounding {
  PaperDrawing drawing;
  bool satisfied = false;  // it is an (alpha, beta, gamma)-approximation
  int roundings = 0;
};

/// Draws up to `most` (u_b) times until the factors are kept. If none keeps them, the best stands: the most utility among those that keep
/// beta and gamma, else the one with the smallest overload.
[[nodiscard]] PaperRounding round_randomly(const PaperSlot& slot, const std::vector<int>& sizes, const WeightedMappings& mappings,
                                           double optimum, const PaperFactors& factors, int most, base::Rng& rng);

}  // namespace maypole::sched
