// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/holding_policy.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <set>
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
    const std::int64_t steps = steps_per_slot(problem);
    return steps - 1 - problem.slot % steps;
  }
  void reset() override { inner_->reset(); }

 private:
  struct Candidate {
    const ActiveJob* active;
    double weight;
  };
  /// A job that has waited so long and does not fit keeps what comes free: nothing lighter starts before it.
  static constexpr double kDoublingsToHold = 2;
  [[nodiscard]] std::vector<Candidate> candidates(const SlotProblem& problem, const model::Cluster& open, const model::Cluster& free,
                                                  const std::set<model::JobId>& resizable) const;
  [[nodiscard]] std::int64_t steps_per_slot(const SlotProblem& problem) const {
    return std::max<std::int64_t>(1, std::llround(options_.slot_s / problem.slot_s));
  }
  [[nodiscard]] Decision ask(const SlotProblem& problem, base::Rng& rng, const std::set<model::JobId>& resizable);
  void keep_where_alike(const SlotProblem& problem, sched::Placement& placement) const;
  [[nodiscard]] bool is_worthwhile(const SlotProblem& problem, const Decision& chosen, const Decision& kept) const;

  std::unique_ptr<sched::Policy> inner_;
  const HeldRings* held_;
  const ClosedServers* closed_;
  HoldingOptions options_;
  std::int64_t last_slot_ = -1;  // of the slots that the policy plans for
};

std::vector<HoldingPolicy::Candidate> HoldingPolicy::candidates(const SlotProblem& problem, const model::Cluster& open,
                                                                const model::Cluster& free, const std::set<model::JobId>& resizable) const {
  std::vector<Candidate> found;
  std::vector<Candidate> running;
  double held_back = 0;  // weights up to this one wait for a job that has waited too long
  for (const ActiveJob& active : problem.jobs) {
    if (held_->contains(active.id)) {
      if (resizable.contains(active.id)) {
        running.push_back({&active, active.job->weight});
      }
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
  }
  if (!running.empty() || found.size() == options_.most_candidates) {
    found.insert(found.end(), running.begin(), running.end());
    std::ranges::sort(found, [](const Candidate& a, const Candidate& b) {
      return std::pair(a.active->job->arrival_s, a.active->id) < std::pair(b.active->job->arrival_s, b.active->id);
    });
  }
  return found;
}

/// The policy's answer for the waiting jobs and those of `resizable`, all others keeping what they hold.
Decision HoldingPolicy::ask(const SlotProblem& problem, base::Rng& rng, const std::set<model::JobId>& resizable) {
  std::vector<Taken> taken;
  Decision decision;
  decision.slot = problem.slot;
  for (const ActiveJob& active : problem.jobs) {
    if (const auto held = held_->find(active.id); held != held_->end() && !resizable.contains(active.id)) {
      taken.push_back({active.job, &held->second.ring, held->second.leaving ? &*held->second.leaving : nullptr});
      decision.placements.push_back({active.id, held->second.ring});
    }
  }
  const model::Cluster open = open_part(*problem.cluster, *closed_);
  const model::Cluster free = without(open, taken);
  const std::vector<Candidate> offered = candidates(problem, open, free, resizable);
  if (!offered.empty()) {
    SlotProblem inner;
    inner.cluster = &free;
    inner.slot_s = options_.slot_s;
    inner.slot = static_cast<std::int64_t>(problem.start_s() / options_.slot_s);
    inner.history = problem.history;
    std::deque<model::Job> aged;
    for (const Candidate& candidate : offered) {
      aged.push_back(*candidate.active->job);
      aged.back().weight = candidate.weight;
      aged.back().arrival_s = std::min(aged.back().arrival_s, inner.start_s());  // it may have come within this slot
      ActiveJob job = *candidate.active;
      job.job = &aged.back();
      job.current = resizable.contains(job.id) ? &held_->at(job.id).ring : nullptr;
      inner.jobs.push_back(job);
    }
    Decision chosen = inner_->decide(inner, rng);
    decision.limited = chosen.limited;
    decision.note = std::move(chosen.note);
    decision.work = chosen.work;
    for (sched::Placement& placement : chosen.placements) {
      if (resizable.contains(placement.job)) {
        keep_where_alike(problem, placement);
      }
      decision.placements.push_back(std::move(placement));
    }
  }
  std::ranges::sort(decision.placements, {}, &sched::Placement::job);
  return decision;
}

/// The same servers in another order, or by other links that are not reserved, are not worth a change.
void HoldingPolicy::keep_where_alike(const SlotProblem& problem, sched::Placement& placement) const {
  const model::Embedding& now = held_->at(placement.job).ring;
  std::vector<model::ServerId> before = now.ring;
  std::vector<model::ServerId> after = placement.embedding.ring;
  std::ranges::sort(before);
  std::ranges::sort(after);
  const auto active = std::ranges::find(problem.jobs, placement.job, &ActiveJob::id);
  if (before == after && !active->job->edge_bandwidth.limited()) {
    placement.embedding = now;
  }
}

/// Whether what is chosen beside `kept` starts a job that would wait otherwise, or pays.
bool HoldingPolicy::is_worthwhile(const SlotProblem& problem, const Decision& chosen, const Decision& kept) const {
  double gained = 0;
  double before = 0;
  const auto find = [](const Decision& decision, model::JobId id) -> const model::Embedding* {
    const auto found = std::ranges::lower_bound(decision.placements, id, {}, &sched::Placement::job);
    return found != decision.placements.end() && found->job == id ? &found->embedding : nullptr;
  };
  for (const ActiveJob& active : problem.jobs) {
    const auto gain = [&](const model::Embedding* ring) {
      if (ring == nullptr) {
        return 0.0;
      }
      const auto held = held_->find(active.id);
      const bool resized = held != held_->end() && held->second.ring.ring != ring->ring;
      return sched::utility_gain(active, sched::slot_progress(active, model::shape_of(*ring), resized, options_.slot_s), problem.start_s());
    };
    const model::Embedding* now = find(chosen, active.id);
    const model::Embedding* otherwise = find(kept, active.id);
    if (now != nullptr && otherwise == nullptr) {
      return true;
    }
    gained += gain(now);
    before += gain(otherwise);
  }
  return gained > before * (1 + kWorthwhile);
}

Decision HoldingPolicy::decide(const SlotProblem& problem, base::Rng& rng) {
  const std::int64_t slot = problem.slot / steps_per_slot(problem);
  std::set<model::JobId> resizable;
  if (slot != last_slot_) {
    for (const ActiveJob& active : problem.jobs) {
      if (const auto held = held_->find(active.id); held != held_->end() && held->second.resizable) {
        resizable.insert(active.id);
      }
    }
  }
  last_slot_ = slot;
  Decision decision = ask(problem, rng, resizable);
  // Those that the policy would stop keep what they have, and it is asked again without them.
  const auto is_dropped = [&](model::JobId id) { return !std::ranges::binary_search(decision.placements, id, {}, &sched::Placement::job); };
  while (std::erase_if(resizable, is_dropped) > 0) {
    decision = ask(problem, rng, resizable);
  }
  const bool changes = std::ranges::any_of(decision.placements, [&](const sched::Placement& placement) {
    return resizable.contains(placement.job) && placement.embedding != held_->at(placement.job).ring;
  });
  if (changes) {
    Decision kept = ask(problem, rng, {});
    if (!is_worthwhile(problem, decision, kept)) {
      decision = std::move(kept);
    }
  }
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

namespace {

/// Workers on each server and payload on each link: the larger of what both rings need.
struct Load {
  std::map<model::ServerId, int> workers;
  std::map<model::LinkId, double> bandwidth;

  explicit Load(const Taken& taken) {
    for (const model::Embedding* ring : {taken.ring, taken.leaving}) {
      if (ring == nullptr) {
        continue;
      }
      std::map<model::ServerId, int> on_server;
      for (const model::ServerId server : ring->ring) {
        workers[server] = std::max(workers[server], ++on_server[server]);
      }
      std::map<model::LinkId, double> on_link;
      for (const std::vector<model::LinkId>& edge : ring->edges) {
        for (const model::LinkId link : edge) {
          on_link[link] += taken.job->edge_bandwidth.bytes_per_second;
          bandwidth[link] = std::max(bandwidth[link], on_link[link]);
        }
      }
    }
  }
};

}  // namespace

model::Cluster without(const model::Cluster& cluster, const std::vector<Taken>& taken) {
  model::ClusterParts parts = cluster.parts();
  for (const Taken& one : taken) {
    const Load load(one);
    for (const auto& [server, workers] : load.workers) {
      for (std::size_t i = 0; i < cluster.num_resources(); ++i) {
        const auto resource = model::ResourceId::from_index(i);
        double& left = parts.servers[server.index()].capacity[resource];
        left = std::max(0.0, left - workers * one.job->demand[resource]);
      }
    }
    for (const auto& [link, used] : load.bandwidth) {
      base::Bandwidth& left = parts.links[link.index()].bandwidth;
      if (left.limited()) {
        left.bytes_per_second = std::max(1.0, left.bytes_per_second - used);
      }
    }
  }
  auto made = model::Cluster::make(std::move(parts));
  MAYPOLE_CHECK(made.ok());  // it differs from a checked one by smaller numbers only
  return *std::move(made);
}

bool has_room(const model::Cluster& free, const Taken& wanted) {
  constexpr double kSlack = 1e-6;  // sums of doubles differ in their last bits
  const Load load(wanted);
  for (const auto& [server, workers] : load.workers) {
    for (std::size_t i = 0; i < free.num_resources(); ++i) {
      const auto resource = model::ResourceId::from_index(i);
      if (workers * wanted.job->demand[resource] > free.server(server).capacity[resource] + kSlack) {
        return false;
      }
    }
  }
  return std::ranges::all_of(load.bandwidth, [&](const auto& link) {
    const base::Bandwidth left = free.link(link.first).bandwidth;
    return !left.limited() || link.second <= left.bytes_per_second * (1 + kSlack);
  });
}

std::unique_ptr<sched::Policy> make_holding_policy(std::unique_ptr<sched::Policy> inner, const HeldRings* held, const ClosedServers* closed,
                                                   const HoldingOptions& options) {
  return std::make_unique<HoldingPolicy>(std::move(inner), held, closed, options);
}

}  // namespace maypole::daemon
