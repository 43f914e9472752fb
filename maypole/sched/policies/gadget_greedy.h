// SPDX-License-Identifier: Apache-2.0
#pragma once

// The greedy answer, which stands behind everything else: fast at any size, and near the bound wherever links are slack.

#include "maypole/sched/policies/gadget_builder.h"

namespace maypole::sched::gadget {

enum class Running {
  kWhereWorthIt,  // a ring stays where it is worth its price, and no other is worth more
  kAll,           // every ring stays
};

/// Fills the empty builder: running rings stay; then, by worth per price, every other job takes the ring that is worth most after `prices`;
/// then stopped rings that still fit come back; what is left goes by marginal utility.
void build_greedily(Builder& builder, const std::vector<Candidate>& candidates, const model::Amounts& pooled_prices, const Prices& prices,
                    Running running = Running::kWhereWorthIt);

}  // namespace maypole::sched::gadget
