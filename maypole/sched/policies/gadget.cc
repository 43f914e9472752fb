// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget.h"

#include "maypole/sched/free_capacity.h"
#include "maypole/sched/policies/gadget_builder.h"
#include "maypole/sched/policies/gadget_classes.h"
#include "maypole/sched/policies/gadget_columns.h"
#include "maypole/sched/policies/gadget_give_back.h"
#include "maypole/sched/policies/gadget_greedy.h"
#include "maypole/sched/policies/gadget_hold.h"
#include "maypole/sched/policies/gadget_pooled.h"
#include "maypole/sched/policies/gadget_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace maypole::sched {

namespace {

using gadget::Candidate;
using gadget::Ring;

constexpr double kEnough = 1e-4;        // a gap at which nothing more is tried
constexpr int kServersTriedHard = 32;   // up to this size of cluster; beyond it the gap widens, since a step costs more and improves less
constexpr std::int64_t kRoundings = 8;  // of the master's columns; local search does the rest
constexpr std::int64_t kSubgradientSteps = 100;
constexpr double kEnoughAtSize = 5e-3;  // the same in a large cluster, where a step improves little

// From kEnough to kEnoughAtSize, even steps by each doubling of the servers.
double enough_gap(int servers) {
  const double doublings = std::log2(static_cast<double>(servers) / kServersTriedHard);
  const double all = std::log2(static_cast<double>(gadget::kServersEverywhere) / kServersTriedHard);
  return kEnough * std::pow(kEnoughAtSize / kEnough, std::clamp(doublings / all, 0.0, 1.0));
}

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

  std::int64_t repeats(const SlotProblem& problem, const Decision& /*decision*/) const override { return gadget::held_after(problem); }

  Decision decide(const SlotProblem& problem, base::Rng& rng) override {
    if (gadget::is_held(problem)) {
      return gadget::hold(problem);
    }
    if (!blind_) {
      return solve(problem, problem, rng);
    }
    std::vector<model::Job> jobs;  // without their lengths
    jobs.reserve(problem.jobs.size());
    SlotProblem hidden = problem;
    for (ActiveJob& active : hidden.jobs) {
      jobs.push_back(*active.job);
      jobs.back().work.reset();
      active.job = &jobs.back();
    }
    return solve(hidden, problem, rng);
  }

 private:
  // To go on as it is and fill what is free may be the better greedy answer; of equals it is, since nothing moves.
  static void go_on_if_no_worse(gadget::Builder& builder, const std::vector<Candidate>& candidates, const gadget::PooledBound& pooled,
                                const gadget::Prices& prices, Work& work) {
    std::vector<Ring> changed = builder.rings();
    const double value = builder.objective();
    builder.reset({});
    gadget::build_greedily(builder, candidates, pooled.prices, prices, gadget::Running::kAll);
    ++work.roundings;
    if (builder.objective() < value) {
      builder.reset(std::move(changed));
    }
  }

  // Few servers: every ring is priced over all of them, and the bound is that of whole rings.
  void refine_small(const gadget::Topology& topology, const std::vector<Candidate>& candidates, const gadget::PooledBound& pooled,
                    const gadget::Prices& prices, gadget::Builder& builder, double& bound, Decision& decision, base::Rng& rng) const {
    const double gap = enough_gap(topology.num_servers());
    gadget::SearchLimits search{
        .steps = 20 * options_.max_roundings, .patience = 100, .max_columns = options_.max_columns, .enough = bound * (1 - gap)};
    decision.limited = gadget::improve(builder, candidates, prices, search, rng);
    if (builder.objective() >= search.enough) {
      return;
    }
    const gadget::ColumnBound columns =
        gadget::column_bound(topology, candidates, builder.rings(), pooled.prices,
                             {.max_pivots = options_.max_pivots, .max_columns = options_.max_columns, .gap = gap}, decision.work);
    bound = std::min(bound, columns.bound);
    search.enough = bound * (1 - gap);
    const std::int64_t roundings = std::min(kRoundings, options_.max_roundings);
    for (std::int64_t k = 0; k < roundings && builder.objective() < search.enough; ++k) {
      gadget::round_columns(builder, candidates, columns, rng);
      ++decision.work.roundings;
    }
    decision.limited = gadget::improve(builder, candidates, columns.prices, search, rng) || columns.limited || decision.limited;
  }

  // Many servers: prices by class of server, the greedy again under them, and then improvement place by place.
  void refine_large(const gadget::Topology& topology, const std::vector<Candidate>& candidates, const gadget::PooledBound& pooled,
                    gadget::Builder& builder, double& bound, Decision& decision, base::Rng& rng) const {
    const gadget::ClassBound classes = gadget::class_bound(
        topology, candidates, builder.objective(), pooled.prices,
        {.steps = kSubgradientSteps, .max_columns = options_.max_columns, .enough = builder.objective() / (1 - kEnoughAtSize)},
        decision.work);
    bound = std::min(bound, classes.bound);
    decision.limited = classes.limited;
    const double enough = bound * (1 - kEnoughAtSize);
    if (builder.objective() >= enough) {
      return;
    }
    std::vector<Ring> first = builder.rings();
    const double value = builder.objective();
    builder.reset({});
    gadget::build_greedily(builder, candidates, pooled.prices, classes.prices);
    ++decision.work.roundings;
    if (builder.objective() < value) {
      builder.reset(std::move(first));
    }
    const gadget::SearchLimits search{.steps = 20 * options_.max_roundings,
                                      .patience = 20 * options_.max_roundings,
                                      .max_columns = options_.max_columns,
                                      .enough = enough};
    decision.limited = gadget::improve(builder, candidates, classes.prices, search, rng) || decision.limited;
  }

  // `problem` as the policy may see it, `real` as it is.
  Decision solve(const SlotProblem& problem, const SlotProblem& real, base::Rng& rng) const {
    Decision decision;
    decision.slot = problem.slot;
    const std::vector<Candidate> candidates = gadget::make_candidates(problem, {.ageing_per_s = options_.ageing_per_s, .blind = blind_});
    const gadget::Topology topology(*problem.cluster);
    const gadget::PooledBound pooled = gadget::pooled_bound(*problem.cluster, candidates, options_.max_pivots, decision.work);
    gadget::Builder builder(topology, candidates, pooled.prices, decision.work);
    const gadget::Prices prices = gadget::uniform_prices(topology, pooled.prices);
    gadget::build_greedily(builder, candidates, pooled.prices, prices);
    decision.work.roundings = 1;
    if (std::ranges::any_of(candidates, &Candidate::keepable)) {
      go_on_if_no_worse(builder, candidates, pooled, prices, decision.work);
    }
    double bound = pooled.value;
    const double enough = bound * (1 - kEnough);
    if (topology.num_servers() <= gadget::kServersEverywhere) {
      refine_small(topology, candidates, pooled, prices, builder, bound, decision, rng);
    } else if (builder.objective() < enough) {
      refine_large(topology, candidates, pooled, builder, bound, decision, rng);
    }
    gadget::give_back(builder, candidates);
    decision.bound_lp = pooled.value;
    decision.bound = bound;
    decision.objective = builder.objective();
    decision.gap = bound > 0 ? std::max(0.0, (bound - builder.objective()) / bound) : 0;
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
