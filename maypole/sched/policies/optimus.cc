// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/optimus.h"

#include "maypole/sched/dominant_share.h"
#include "maypole/sched/policies/elastic.h"
#include "maypole/sched/policies/rigid.h"
#include "maypole/sched/remaining_time.h"

#include <cmath>

namespace maypole::sched {

namespace {

/// The marginal gains of a slot's jobs.
class Gains {
 public:
  explicit Gains(const SlotProblem& problem) : problem_(problem), remaining_(problem) {
    for (const ActiveJob& job : problem.jobs) {
      shares_.push_back(dominant_share(*job.job, *problem.cluster));
    }
  }

  [[nodiscard]] std::optional<Urgency> next(std::size_t i, int workers) const {
    const ActiveJob& job = problem_.jobs[i];
    if (workers == 0) {
      return Urgency(0, remaining_.slots(job, job.job->min_workers));
    }
    const double now = remaining_.slots(job, workers);
    const bool ends = std::isfinite(now);
    const double gain = ends ? now - remaining_.slots(job, workers + 1)
                             : (remaining_.rate(job, workers + 1) - remaining_.rate(job, workers)) / remaining_.rate(job, workers);
    if (!(gain > 0)) {
      return std::nullopt;
    }
    return Urgency(ends ? 1 : 2, -gain / shares_[i]);
  }

 private:
  const SlotProblem& problem_;
  RemainingTime remaining_;
  std::vector<double> shares_;  // [job]: of one worker
};

class Optimus : public Policy {
 public:
  explicit Optimus(RingStyle style) : style_(style) {}
  [[nodiscard]] std::string name() const override { return "optimus"; }

  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& /*rng*/) override {
    const Gains gains(problem);
    return decide_elastic(problem, [&](std::size_t i, int workers) { return gains.next(i, workers); }, style_);
  }

  // Gains change with progress, so only two cases stay as they are: every job has all that it can use; or no job can have more or less than
  // its minimum, and those run that should: running jobs come nearer to their ends, waiting ones do not.
  [[nodiscard]] std::int64_t repeats(const SlotProblem& problem, const Decision& decision) const override {
    const std::vector<int> workers = workers_by_position(problem, decision);
    const Gains gains(problem);
    const std::vector<int> targets = pooled_targets(problem, [&](std::size_t i, int count) { return gains.next(i, count); });
    bool at_limit = true;
    bool rigid = true;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const int limit = worker_limit(problem.jobs[i]);
      at_limit = at_limit && workers[i] == limit;
      rigid = rigid && limit <= problem.jobs[i].job->min_workers;
    }
    return is_settled(problem, decision, targets) && (at_limit || (rigid && workers == targets)) ? kForever : 0;
  }

 private:
  RingStyle style_;
};

}  // namespace

std::unique_ptr<Policy> make_optimus(const PolicyOptions& options) {
  return std::make_unique<Optimus>(options.topology_aware ? RingStyle::kTopology : RingStyle::kGreedy);
}

}  // namespace maypole::sched
