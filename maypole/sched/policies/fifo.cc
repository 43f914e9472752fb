// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/fifo.h"

#include "maypole/sched/policies/rigid.h"

#include <algorithm>
#include <numeric>

namespace maypole::sched {

namespace {

class Fifo : public Policy {
 public:
  explicit Fifo(RingStyle style) : style_(style) {}
  [[nodiscard]] std::string name() const override { return "fifo"; }

  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& /*rng*/) override {
    std::vector<std::size_t> order(problem.jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});  // as they arrived
    // Running ones first: whoever stands behind them cannot take their place.
    std::ranges::stable_partition(order, [&](std::size_t i) { return problem.jobs[i].running(); });
    return decide_rigid(problem, order, style_);
  }

  [[nodiscard]] std::int64_t repeats(const SlotProblem& problem, const Decision& decision) const override {
    return slots_without_start(problem, decision, style_);
  }

 private:
  RingStyle style_;
};

}  // namespace

std::unique_ptr<Policy> make_fifo(const PolicyOptions& options) {
  return std::make_unique<Fifo>(options.topology_aware ? RingStyle::kTopology : RingStyle::kGreedy);
}

}  // namespace maypole::sched
