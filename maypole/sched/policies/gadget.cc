// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget.h"

#include "maypole/sched/free_capacity.h"
#include "maypole/sched/policies/gadget_builder.h"
#include "maypole/sched/policies/gadget_greedy.h"
#include "maypole/sched/policies/gadget_pooled.h"

#include <utility>

namespace maypole::sched {

namespace {

using gadget::Candidate;
using gadget::Ring;

// The rings as a decision. What does not fit by the count of another class is left out: it never happens, and if it did, the cluster
// would be worth more than the job.
void write_placements(const SlotProblem& problem, const std::vector<Candidate>& candidates, const std::vector<Ring>& rings,
                      Decision& decision) {
  FreeCapacity free(*problem.cluster);
  for (std::size_t i = 0; i < rings.size(); ++i) {
    if (rings[i].parts.empty()) {
      continue;
    }
    const ActiveJob& active = problem.jobs[i];
    model::Embedding embedding = rings[i].kept ? *active.current : gadget::embedding_of(rings[i], *candidates[i].job);
    if (!free.fits(*candidates[i].job, embedding)) {
      decision.note = "a ring that did not fit was left out";
      continue;
    }
    free.take(*candidates[i].job, embedding);
    const bool resized = !active.running() || active.current->ring != embedding.ring;
    decision.utility += utility_gain(active, slot_progress(active, model::shape_of(embedding), resized, problem.slot_s), problem.start_s());
    decision.placements.push_back({active.id, std::move(embedding)});
  }
}

class Gadget : public Policy {
 public:
  Gadget(const PolicyOptions& options, bool blind) : options_(options), blind_(blind) {}

  std::string name() const override { return blind_ ? "gadget-blind" : "gadget"; }

  Decision decide(const SlotProblem& problem, base::Rng& /*rng*/) override {
    if (!blind_) {
      return solve(problem, problem);
    }
    std::vector<model::Job> jobs;  // without their lengths
    jobs.reserve(problem.jobs.size());
    SlotProblem hidden = problem;
    for (ActiveJob& active : hidden.jobs) {
      jobs.push_back(*active.job);
      jobs.back().work.reset();
      active.job = &jobs.back();
    }
    return solve(hidden, problem);
  }

 private:
  // `problem` as the policy may see it, `real` as it is.
  Decision solve(const SlotProblem& problem, const SlotProblem& real) const {
    Decision decision;
    decision.slot = problem.slot;
    const std::vector<Candidate> candidates = gadget::make_candidates(problem, {.ageing_per_s = options_.ageing_per_s, .blind = blind_});
    const gadget::Topology topology(*problem.cluster);
    const gadget::PooledBound pooled = gadget::pooled_bound(*problem.cluster, candidates, options_.max_pivots, decision.work);
    gadget::Builder builder(topology, candidates, pooled.prices, decision.work);
    gadget::build_greedily(builder, candidates, pooled.prices);
    decision.work.roundings = 1;
    decision.bound_lp = pooled.value;
    decision.bound = pooled.value;
    decision.gap = pooled.value > 0 ? (pooled.value - builder.objective()) / pooled.value : 0;
    write_placements(real, candidates, builder.rings(), decision);
    return decision;
  }

  PolicyOptions options_;
  bool blind_;
};

}  // namespace

std::unique_ptr<Policy> make_gadget(const PolicyOptions& options) { return std::make_unique<Gadget>(options, /*blind=*/false); }
std::unique_ptr<Policy> make_gadget_blind(const PolicyOptions& options) { return std::make_unique<Gadget>(options, /*blind=*/true); }

}  // namespace maypole::sched
