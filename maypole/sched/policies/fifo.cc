// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/fifo.h"

#include "maypole/sched/policies/rigid.h"

#include <algorithm>
#include <limits>
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

  // Who waits or runs, and where, is all that it looks at; and whether a limit of racks still holds, which time lifts.
  [[nodiscard]] std::int64_t repeats(const SlotProblem& problem, const Decision& /*decision*/) const override {
    const auto lifted = [](const ActiveJob& job) { return job.job->max_racks > 0 && job.job->max_racks_s > 0; };
    return std::ranges::any_of(problem.jobs, lifted) ? 0 : std::numeric_limits<std::int64_t>::max();
  }

 private:
  RingStyle style_;
};

}  // namespace

std::unique_ptr<Policy> make_fifo(const PolicyOptions& options) {
  return std::make_unique<Fifo>(options.topology_aware ? RingStyle::kTopology : RingStyle::kGreedy);
}

}  // namespace maypole::sched
