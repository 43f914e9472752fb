// SPDX-License-Identifier: Apache-2.0
#pragma once

// Repair and improvement of a slot's rings: take a few rings that meet in one place out, put their jobs back in another order under
// slightly other prices, fill what is left, and keep the result if it is worth no less.
//
// Complexity: a step touches a handful of jobs, whatever the size of the cluster.

#include "maypole/base/rng.h"
#include "maypole/sched/policies/gadget_builder.h"

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

}  // namespace maypole::sched::gadget
