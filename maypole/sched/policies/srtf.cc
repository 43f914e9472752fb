// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/srtf.h"

#include "maypole/sched/policies/rigid.h"
#include "maypole/sched/remaining_time.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace maypole::sched {

namespace {

class Srtf : public Policy {
 public:
  explicit Srtf(RingStyle style) : style_(style) {}
  [[nodiscard]] std::string name() const override { return "srtf"; }

  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& /*rng*/) override {
    const RemainingTime remaining(problem);
    std::vector<double> slots;
    for (const ActiveJob& job : problem.jobs) {
      slots.push_back(remaining.slots(job, job.job->workers));
    }
    std::vector<std::size_t> order(problem.jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    // Of equals the running one, then the first to arrive.
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::tuple(slots[i], !problem.jobs[i].running(), i); });
    return decide_rigid(problem, order, style_);
  }

  // Running jobs come nearer to their ends, waiting ones do not.
  [[nodiscard]] std::int64_t repeats(const SlotProblem& problem, const Decision& decision) const override {
    return slots_without_start(problem, decision, style_);
  }

 private:
  RingStyle style_;
};

}  // namespace

std::unique_ptr<Policy> make_srtf(const PolicyOptions& options) {
  return std::make_unique<Srtf>(options.topology_aware ? RingStyle::kTopology : RingStyle::kGreedy);
}

}  // namespace maypole::sched
