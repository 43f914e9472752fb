// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/las.h"

#include "maypole/sched/policies/rigid.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace maypole::sched {

namespace {

class Las : public Policy {
 public:
  Las(double threshold_s, RingStyle style) : threshold_s_(threshold_s), style_(style) {}
  [[nodiscard]] std::string name() const override { return "las"; }

  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& /*rng*/) override {
    const double threshold_s = threshold(problem);
    std::vector<std::size_t> order(problem.jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) {
      const ActiveJob& job = problem.jobs[i];
      return continuous() ? std::tuple(job.attained_s, !job.running(), i) : std::tuple(job.attained_s >= threshold_s ? 1.0 : 0.0, false, i);
    });
    return decide_rigid(problem, order, style_);
  }

  // As long as no running job has attained so much that one which waits comes before it.
  [[nodiscard]] std::int64_t repeats(const SlotProblem& problem, const Decision& decision) const override {
    if (threshold_s_ == 0 && decision.placements.size() < problem.jobs.size()) {
      return 0;  // the mean moves with every slot
    }
    std::unordered_map<std::int32_t, const model::Embedding*> rings;
    for (const Placement& placement : decision.placements) {
      rings.emplace(placement.job.value(), &placement.embedding);
    }
    std::vector<double> limits;  // of service, at which a running job may fall behind a waiting one
    for (const ActiveJob& job : problem.jobs) {
      if (!rings.contains(job.id.value())) {
        limits.push_back(continuous() ? job.attained_s : threshold_s_);
      }
    }
    std::ranges::sort(limits);
    std::int64_t slots = slots_without_start(problem, decision, style_);
    for (const ActiveJob& job : problem.jobs) {
      const auto ring = rings.find(job.id.value());
      const auto limit = std::ranges::lower_bound(limits, job.attained_s);
      if (ring == rings.end() || limit == limits.end()) {
        continue;
      }
      const double a_slot = ring->second->workers() * job.job->demand[problem.cluster->accelerator()] * problem.slot_s;
      // A little early: the sum of many slots is off in its last bits.
      const double left = (*limit - job.attained_s) / a_slot * (1 - 1e-9);
      if (a_slot > 0 && left < 1e15) {
        slots = std::min(slots, static_cast<std::int64_t>(std::max(0.0, std::ceil(left) - 1)));
      }
    }
    return slots;
  }

 private:
  [[nodiscard]] bool continuous() const { return threshold_s_ < 0; }
  [[nodiscard]] double threshold(const SlotProblem& problem) const {
    if (threshold_s_ != 0) {
      return threshold_s_;
    }
    double sum = 0;
    for (const ActiveJob& job : problem.jobs) {
      sum += job.attained_s;
    }
    return problem.jobs.empty() ? 0 : sum / static_cast<double>(problem.jobs.size());
  }

  double threshold_s_;
  RingStyle style_;
};

}  // namespace

std::unique_ptr<Policy> make_las(const PolicyOptions& options) {
  return std::make_unique<Las>(options.las_threshold_s, options.topology_aware ? RingStyle::kTopology : RingStyle::kGreedy);
}

}  // namespace maypole::sched
