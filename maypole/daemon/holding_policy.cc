// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/holding_policy.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

namespace maypole::daemon {

namespace {

using sched::ActiveJob;
using sched::Decision;
using sched::SlotProblem;

class HoldingPolicy final : public sched::Policy {
 public:
  HoldingPolicy(std::unique_ptr<sched::Policy> inner, const HeldRings* held, const ClosedServers* closed, const HoldingOptions& options)
      : inner_(std::move(inner)), held_(held), closed_(closed), options_(options) {}

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& rng) override;
  /// Nothing changes by itself before the next slot begins: only then may the policy think differently of those that it lets wait.
  [[nodiscard]] std::int64_t repeats(const SlotProblem& problem, const Decision& /*decision*/) const override {
    const auto steps = static_cast<std::int64_t>(std::llround(options_.slot_s / problem.slot_s));
    return steps > 0 ? steps - 1 - problem.slot % steps : 0;
  }
  void reset() override { inner_->reset(); }

 private:
  struct Candidate {
    const ActiveJob* active;
    double weight;
  };
  /// A job that has waited so long and does not fit keeps what comes free: nothing lighter starts before it.
  static constexpr double kDoublingsToHold = 2;
  [[nodiscard]] std::vector<Candidate> candidates(const SlotProblem& problem, const model::Cluster& open, const model::Cluster& free) const;

  std::unique_ptr<sched::Policy> inner_;
  const HeldRings* held_;
  const ClosedServers* closed_;
  HoldingOptions options_;
};

std::vector<HoldingPolicy::Candidate> HoldingPolicy::candidates(const SlotProblem& problem, const model::Cluster& open,
                                                                const model::Cluster& free) const {
  std::vector<Candidate> found;
  double held_back = 0;  // weights up to this one wait for a job that has waited too long
  for (const ActiveJob& active : problem.jobs) {
    if (held_->contains(active.id)) {
      continue;
    }
    constexpr double kMostDoublings = 500;  // 2^500 is a weight still, 2^1100 is none
    const double doublings = options_.age_s > 0 ? std::min(active.waiting_s / options_.age_s, kMostDoublings) : 0;
    const double weight = active.job->weight * std::exp2(doublings);
    const auto fits = [&](const model::Cluster& cluster) {
      return model::empty_cluster_workers(*active.job, cluster, active.job->min_workers) >= active.job->min_workers;
    };
    if (fits(free)) {
      found.push_back({&active, weight});
    } else if (doublings >= kDoublingsToHold && fits(open)) {  // what waits for a closed server holds nobody up
      held_back = std::max(held_back, weight);
    }
  }
  std::erase_if(found, [&](const Candidate& candidate) { return candidate.weight <= held_back; });
  if (found.size() > options_.most_candidates) {
    std::ranges::stable_sort(found, std::greater{}, &Candidate::weight);
    found.resize(options_.most_candidates);
    std::ranges::sort(found, [](const Candidate& a, const Candidate& b) {
      return std::pair(a.active->job->arrival_s, a.active->id) < std::pair(b.active->job->arrival_s, b.active->id);
    });
  }
  return found;
}

Decision HoldingPolicy::decide(const SlotProblem& problem, base::Rng& rng) {
  std::vector<std::pair<const model::Job*, const model::Embedding*>> rings;
  Decision decision;
  decision.slot = problem.slot;
  for (const ActiveJob& active : problem.jobs) {
    if (const auto held = held_->find(active.id); held != held_->end()) {
      rings.emplace_back(active.job, &held->second);
      decision.placements.push_back({active.id, held->second});
    }
  }
  const model::Cluster open = open_part(*problem.cluster, *closed_);
  const model::Cluster free = without(open, rings);
  const std::vector<Candidate> offered = candidates(problem, open, free);
  if (!offered.empty()) {
    SlotProblem inner;
    inner.cluster = &free;
    inner.slot_s = options_.slot_s;
    inner.slot = static_cast<std::int64_t>(problem.start_s() / options_.slot_s);
    std::deque<model::Job> aged;
    for (const Candidate& candidate : offered) {
      aged.push_back(*candidate.active->job);
      aged.back().weight = candidate.weight;
      aged.back().arrival_s = std::min(aged.back().arrival_s, inner.start_s());  // it may have come within this slot
      ActiveJob job = *candidate.active;
      job.job = &aged.back();
      job.current = nullptr;
      inner.jobs.push_back(job);
    }
    Decision chosen = inner_->decide(inner, rng);
    decision.limited = chosen.limited;
    decision.note = std::move(chosen.note);
    decision.work = chosen.work;
    std::ranges::move(chosen.placements, std::back_inserter(decision.placements));
  }
  std::ranges::sort(decision.placements, {}, &sched::Placement::job);
  for (const ActiveJob& active : problem.jobs) {
    const auto placed = std::ranges::lower_bound(decision.placements, active.id, {}, &sched::Placement::job);
    if (placed != decision.placements.end() && placed->job == active.id) {
      const bool resized = active.running() && active.current->ring != placed->embedding.ring;
      const double progress = sched::slot_progress(active, model::shape_of(placed->embedding), resized, problem.slot_s);
      decision.utility += sched::utility_gain(active, progress, problem.start_s());
    }
  }
  return decision;
}

}  // namespace

model::Cluster open_part(const model::Cluster& cluster, const ClosedServers& closed) {
  if (closed.empty()) {
    return cluster;
  }
  model::ClusterParts parts = cluster.parts();
  for (const model::ServerId server : closed) {
    parts.servers[server.index()].capacity.assign(cluster.num_resources(), 0);
  }
  auto made = model::Cluster::make(std::move(parts));
  MAYPOLE_CHECK(made.ok());  // it differs from a checked one by zeros only
  return *std::move(made);
}

model::Cluster without(const model::Cluster& cluster, const std::vector<std::pair<const model::Job*, const model::Embedding*>>& rings) {
  model::ClusterParts parts = cluster.parts();
  for (const auto& [job, embedding] : rings) {
    for (const model::ServerId server : embedding->ring) {
      for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
        const auto resource = model::ResourceId::from_index(i);
        double& left = parts.servers[server.index()].capacity[resource];
        left = std::max(0.0, left - job->demand[resource]);
      }
    }
    for (const std::vector<model::LinkId>& edge : embedding->edges) {
      for (const model::LinkId link : edge) {
        base::Bandwidth& left = parts.links[link.index()].bandwidth;
        if (left.limited()) {
          left.bytes_per_second = std::max(1.0, left.bytes_per_second - job->edge_bandwidth.bytes_per_second);
        }
      }
    }
  }
  auto made = model::Cluster::make(std::move(parts));
  MAYPOLE_CHECK(made.ok());  // it differs from a checked one by smaller numbers only
  return *std::move(made);
}

std::unique_ptr<sched::Policy> make_holding_policy(std::unique_ptr<sched::Policy> inner, const HeldRings* held, const ClosedServers* closed,
                                                   const HoldingOptions& options) {
  return std::make_unique<HoldingPolicy>(std::move(inner), held, closed, options);
}

}  // namespace maypole::daemon
