// SPDX-License-Identifier: Apache-2.0
#pragma once

// Repair and improvement of a slot's rings: take a few rings that meet in one place out, put their jobs back in another order under
// slightly other prices, fill what is left, and keep the result if it is worth no less.
//
// Complexity: a step touches a handful of jobs, whatever the size of the cluster.

#include "maypole/base/rng.h"
#include "maypole/sched/policies/gadget_builder.h"
#include "maypole/sched/policies/gadget_columns.h"

#include <cstdint>

namespace maypole::sched::gadget {

struct SearchLimits {
  std::int64_t steps = 0;        // at most
  std::int64_t patience = 0;     // stop after so many steps without improvement
  std::int64_t max_columns = 0;  // stop when so many embeddings have been priced in all (Work::columns)
  double enough = 0;             // stop when the objective has reached this
};

/// Returns true where `max_columns` stopped it.
bool improve(Builder& builder, const std::vector<Candidate>& candidates, const Prices& prices, const SearchLimits& limits, base::Rng& rng);

/// Randomised rounding with repair: every job, in random order, draws one of its columns with the probability that is its weight, or none;
/// a ring that no longer fits is dropped; then jobs without a ring take what is worth most after prices, and what is left is filled. The
/// builder keeps the better of the result and what it had.
void round_columns(Builder& builder, const std::vector<Candidate>& candidates, const ColumnBound& columns, base::Rng& rng);

}  // namespace maypole::sched::gadget
