// SPDX-License-Identifier: Apache-2.0
#pragma once

// Branch and price for the integer program (10) of one slot.
//
// A node of the search is a box for every job: bounds on its workers on each server, its crossings of each edge and its variant. Two
// different columns of one job differ in such a feature, so some feature splits any fractional solution, and both halves keep every
// integer one. Nodes are taken by the best bound. At each: the master program (exact_master.h), at the first ones with lifted covers;
// rounding (exact_rounding.h); and features whose other value cannot beat the best choice are fixed by reduced costs.

#include "maypole/sched/policies/exact_rounding.h"

namespace maypole::sched {

struct ExactLimits {
  std::int64_t nodes = 20'000;
  std::int64_t pivots = 20'000'000;
  std::size_t listed_columns = 20'000;  // clusters that are no tree
  double gap = 1e-6;                    // of the best choice (at least of the best single gain): what is closer counts as equal
};

struct ExactAnswer {
  ExactChoice choice;
  double bound = 0;    // on every choice's gain
  bool proven = true;  // choice.gain is within the gap of the bound
  std::int64_t nodes = 0;
  Work work;
};

[[nodiscard]] ExactAnswer solve_exactly(const ExactProblem& problem, const ExactLimits& limits);

}  // namespace maypole::sched
