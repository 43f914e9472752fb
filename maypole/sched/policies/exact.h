// SPDX-License-Identifier: Apache-2.0
#pragma once

// Policy `exact`: the integer program (10) of each slot, solved to optimality (within 1e-6) by branch and price. For small cases: up to
// about 16 servers and 12 jobs in a second where links bind hard. It is myopic, as (10) is: utilities are not looked at beyond the slot.
//
// `bound` is the proven bound, `gap` what is left to it (0 unless a limit cut the search, then `limited` is set).

#include "maypole/sched/policies/exact_search.h"
#include "maypole/sched/policy.h"

namespace maypole::sched {

class Exact : public Policy {
 public:
  explicit Exact(const ExactLimits& limits = {}) : limits_(limits) {}
  [[nodiscard]] std::string name() const override { return "exact"; }
  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& rng) override;

 private:
  ExactLimits limits_;
};

[[nodiscard]] std::unique_ptr<Policy> make_exact(const PolicyOptions& options);

}  // namespace maypole::sched
