// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/drf.h"

#include "maypole/sched/dominant_share.h"
#include "maypole/sched/policies/elastic.h"
#include "maypole/sched/policies/rigid.h"

namespace maypole::sched {

namespace {

class Drf : public Policy {
 public:
  explicit Drf(RingStyle style) : style_(style) {}
  [[nodiscard]] std::string name() const override { return "drf"; }

  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& /*rng*/) override {
    return decide_elastic(problem, rule(problem), style_);
  }

  // Shares do not change with progress.
  [[nodiscard]] std::int64_t repeats(const SlotProblem& problem, const Decision& decision) const override {
    return is_settled(problem, decision, pooled_targets(problem, rule(problem))) ? kForever : 0;
  }

 private:
  [[nodiscard]] static ElasticRule rule(const SlotProblem& problem) {
    std::vector<double> shares;  // [job]: of one worker
    for (const ActiveJob& job : problem.jobs) {
      shares.push_back(dominant_share(*job.job, *problem.cluster));
    }
    return [&problem, shares](std::size_t i, int workers) -> std::optional<Urgency> {
      const double weight = problem.jobs[i].job->weight;
      return weight > 0 ? Urgency(0, workers * shares[i] / weight) : Urgency(1, workers * shares[i]);
    };
  }

  RingStyle style_;
};

}  // namespace

std::unique_ptr<Policy> make_drf(const PolicyOptions& options) {
  return std::make_unique<Drf>(options.topology_aware ? RingStyle::kTopology : RingStyle::kGreedy);
}

}  // namespace maypole::sched
