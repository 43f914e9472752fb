// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/elastic.h"

#include "maypole/sched/assemble.h"
#include "maypole/sched/ring_resize.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace maypole::sched {

namespace {

using model::Amounts;
using model::Embedding;
using model::ResourceId;

/// Jobs in order of urgency; of equals the first to arrive.
class UrgencyQueue {
 public:
  explicit UrgencyQueue(const ElasticRule& rule) : rule_(rule) {}
  void push(std::size_t i, int workers) {
    if (const std::optional<Urgency> urgency = rule_(i, workers)) {
      queue_.emplace(*urgency, i);
    }
  }
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  std::size_t pop() {
    const std::size_t i = queue_.top().second;
    queue_.pop();
    return i;
  }

 private:
  using Entry = std::pair<Urgency, std::size_t>;
  const ElasticRule& rule_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

/// Amounts of all servers together.
class Pool {
 public:
  explicit Pool(const model::Cluster& cluster) : total_(cluster.total_capacity()), left_(total_) {}
  [[nodiscard]] bool holds(const model::Job& job, int workers) const {
    for (std::size_t k = 0; k < left_.size(); ++k) {
      const ResourceId r = ResourceId::from_index(k);
      if (workers * job.demand[r] > left_[r] + kFitTolerance * total_[r]) {
        return false;
      }
    }
    return true;
  }
  void take(const model::Job& job, int workers) {
    for (std::size_t k = 0; k < left_.size(); ++k) {
      const ResourceId r = ResourceId::from_index(k);
      left_[r] -= workers * job.demand[r];
    }
  }

 private:
  Amounts total_;
  Amounts left_;
};

/// Workers that a job asks for next.
int step(const ActiveJob& job, int workers) { return workers == 0 ? job.job->min_workers : 1; }

// Searches among the surplus of others that may fail in a slot: with reservations, one that failed says nothing of the next.
constexpr std::size_t kMaxFailures = 64;

/// A search that failed; one that asks for no less of anything fails too.
struct Failed {
  const ActiveJob* job;
  int workers;
};

class ElasticPass {
 public:
  ElasticPass(const SlotProblem& problem, const ElasticRule& rule, RingStyle style)
      : problem_(problem),
        rule_(rule),
        placer_(*problem.cluster, style),
        pool_(*problem.cluster),
        targets_(pooled_targets(problem, rule)),
        rings_(problem.jobs.size()) {}

  Decision run() {
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      hold(i);
    }
    raise_all();
    if (starved(rings_) > 0) {
      place_anew();
    }
    fill();
    go_back();
    return assemble(problem_, std::move(rings_));
  }

 private:
  [[nodiscard]] const ActiveJob& job(std::size_t i) const { return problem_.jobs[i]; }
  [[nodiscard]] int workers(std::size_t i) const { return rings_[i] ? rings_[i]->workers() : 0; }

  void take(std::size_t i, Embedding ring) {
    placer_.take(*job(i).job, ring);
    pool_.take(*job(i).job, ring.workers());
    rings_[i] = std::move(ring);
  }
  void drop(std::size_t i) {
    placer_.give_back(*job(i).job, *rings_[i]);
    pool_.take(*job(i).job, -rings_[i]->workers());
    rings_[i].reset();
  }

  void hold(std::size_t i) {
    if (!job(i).running() || worker_limit(job(i)) == 0 || job(i).current->workers() < job(i).job->min_workers) {
      return;
    }
    Embedding ring =
        job(i).current->workers() > worker_limit(job(i)) ? fewer(placer_, job(i), *job(i).current, worker_limit(job(i))) : *job(i).current;
    if (placer_.fits(*job(i).job, ring)) {
      take(i, std::move(ring));
    }
  }

  /// Gives the job a step more of what is free; a job without workers as many as it finds up to `most`.
  bool lift(std::size_t i, int most) {
    if (!pool_.holds(*job(i).job, step(job(i), workers(i)))) {
      return false;
    }
    if (rings_[i]) {
      if (!placer_.rooms().next(0, job(i).job->demand).valid()) {
        return false;
      }
      Embedding ring = *rings_[i];
      drop(i);
      std::optional<Embedding> more = one_more(placer_, job(i), ring);
      const bool grows = more.has_value();
      take(i, grows ? *std::move(more) : std::move(ring));
      return grows;
    }
    for (int count = most; count >= job(i).job->min_workers; --count) {
      if (pool_.holds(*job(i).job, count)) {
        if (std::optional<Embedding> ring = placer_.place(job(i), count)) {
          take(i, *std::move(ring));
          return true;
        }
      }
    }
    return false;
  }

  [[nodiscard]] bool is_hopeless(std::size_t i) const {
    const int racks = rack_limit(job(i), *problem_.cluster);
    return std::ranges::any_of(failed_, [&](const Failed& failed) {
      const int other_racks = rack_limit(*failed.job, *problem_.cluster);
      const bool freer = other_racks == 0 || (racks > 0 && racks <= other_racks && !rings_[i]);
      return freer && !failed.job->job->edge_bandwidth.limited() && step(job(i), workers(i)) >= failed.workers &&
             std::ranges::equal(job(i).job->demand, failed.job->job->demand, std::ranges::greater_equal{});
    });
  }

  void raise_all() {
    std::vector<std::pair<Urgency, std::size_t>> below;
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      if (workers(i) < targets_[i]) {
        below.emplace_back(rule_(i, workers(i)).value_or(Urgency()), i);
      }
    }
    std::ranges::sort(below);
    for (const auto& [urgency, i] : below) {
      while (workers(i) < targets_[i] && (lift(i, targets_[i]) || (!is_hopeless(i) && lift_from_surplus(i)))) {
      }
    }
  }

  bool lift_from_surplus(std::size_t i) {
    if (failed_.size() >= kMaxFailures) {
      return false;
    }
    std::vector<std::pair<Urgency, std::size_t>> above;
    for (std::size_t k = 0; k < rings_.size(); ++k) {
      if (workers(k) > targets_[k]) {
        above.emplace_back(rule_(k, workers(k)).value_or(Urgency()), k);
      }
    }
    std::ranges::sort(above, std::ranges::greater{});  // the least urgent give first
    std::vector<std::pair<std::size_t, Embedding>> before;
    bool lifted = false;
    std::size_t batch = 1;  // doubled: what never succeeds costs few attempts
    for (std::size_t next = 0; next < above.size() && !lifted; batch *= 2) {
      for (std::size_t end = std::min(above.size(), next + batch); next < end; ++next) {
        const std::size_t victim = above[next].second;
        before.emplace_back(victim, *rings_[victim]);
        shrink_to_target(victim);
      }
      lifted = lift(i, targets_[i]);
    }
    if (!lifted) {
      failed_.push_back({&job(i), step(job(i), workers(i))});
    }
    // Those that need not give keep what they had, the most urgent first.
    for (std::size_t k = before.size(); k-- > 0;) {
      const std::size_t victim = before[k].first;
      std::optional<Embedding> now = rings_[victim];
      if (now) {
        drop(victim);
      }
      if (placer_.fits(*job(victim).job, before[k].second)) {
        take(victim, std::move(before[k].second));
      } else if (now) {
        take(victim, *std::move(now));
      }
    }
    return lifted;
  }

  void shrink_to_target(std::size_t i) {
    const Embedding ring = *rings_[i];
    drop(i);
    if (targets_[i] > 0) {
      const Embedding less = fewer(placer_, job(i), ring, targets_[i]);
      take(i, placer_.fits(*job(i).job, less) ? less : ring);
    }
  }

  [[nodiscard]] std::size_t starved(const std::vector<std::optional<Embedding>>& rings) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < rings.size(); ++i) {
      count += targets_[i] > 0 && !rings[i] ? 1 : 0;
    }
    return count;
  }

  void place_anew() {
    std::vector<std::tuple<double, std::size_t>> order;
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      if (targets_[i] > 0) {
        double largest = 0;
        for (std::size_t k = 0; k < job(i).job->demand.size(); ++k) {
          const ResourceId r = ResourceId::from_index(k);
          largest = std::max(largest, job(i).job->demand[r] / std::max(1e-300, problem_.cluster->total_capacity()[r]));
        }
        order.emplace_back(-largest, i);
      }
    }
    std::ranges::sort(order);
    ElasticPass other(problem_, rule_, placer_.style());
    for (const auto& [size, i] : order) {
      (void)other.lift(i, targets_[i]);
    }
    if (starved(other.rings_) < starved(rings_)) {
      for (std::size_t i = 0; i < rings_.size(); ++i) {
        if (rings_[i]) {
          drop(i);
        }
      }
      for (std::size_t i = 0; i < rings_.size(); ++i) {
        if (other.rings_[i]) {
          take(i, *std::move(other.rings_[i]));
        }
      }
    }
  }

  void fill() {
    UrgencyQueue queue(rule_);
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      queue.push(i, workers(i));
    }
    while (!queue.empty()) {
      const std::size_t i = queue.pop();
      if (workers(i) + step(job(i), workers(i)) > worker_limit(job(i)) || is_hopeless(i)) {
        continue;
      }
      if (lift(i, job(i).job->min_workers)) {
        queue.push(i, workers(i));
      } else {
        failed_.push_back({&job(i), step(job(i), workers(i))});
      }
    }
  }

  /// A job that has as many workers as before has them where they were, if it can.
  void go_back() {
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      if (rings_[i] && job(i).running() && workers(i) == job(i).current->workers() && rings_[i]->ring != job(i).current->ring) {
        const Embedding ring = *rings_[i];
        drop(i);
        take(i, placer_.fits(*job(i).job, *job(i).current) ? *job(i).current : ring);
      }
    }
  }

  const SlotProblem& problem_;
  const ElasticRule& rule_;
  RingPlacer placer_;
  Pool pool_;
  std::vector<int> targets_;
  std::vector<std::optional<Embedding>> rings_;  // [position in problem.jobs]
  std::vector<Failed> failed_;
};

}  // namespace

std::vector<int> pooled_targets(const SlotProblem& problem, const ElasticRule& rule) {
  std::vector<int> targets(problem.jobs.size(), 0);
  Pool pool(*problem.cluster);
  UrgencyQueue queue(rule);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    queue.push(i, 0);
  }
  while (!queue.empty()) {
    const std::size_t i = queue.pop();
    const ActiveJob& job = problem.jobs[i];
    const int more = step(job, targets[i]);
    if (targets[i] + more <= worker_limit(job) && pool.holds(*job.job, more)) {
      pool.take(*job.job, more);
      targets[i] += more;
      queue.push(i, targets[i]);
    }
  }
  return targets;
}

Decision decide_elastic(const SlotProblem& problem, const ElasticRule& rule, RingStyle style) {
  return ElasticPass(problem, rule, style).run();
}

std::vector<int> workers_by_position(const SlotProblem& problem, const Decision& decision) {
  std::unordered_map<std::int32_t, int> workers;
  for (const Placement& placement : decision.placements) {
    workers.emplace(placement.job.value(), placement.embedding.workers());
  }
  std::vector<int> result;
  for (const ActiveJob& job : problem.jobs) {
    const auto found = workers.find(job.id.value());
    result.push_back(found == workers.end() ? 0 : found->second);
  }
  return result;
}

bool is_settled(const SlotProblem& problem, const Decision& decision, std::span<const int> targets) {
  const std::vector<int> workers = workers_by_position(problem, decision);
  bool all_have_targets = true;
  bool all_rigid = true;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const ActiveJob& job = problem.jobs[i];
    all_have_targets = all_have_targets && workers[i] >= targets[i];
    all_rigid = all_rigid && worker_limit(job) <= job.job->min_workers;
    const bool reserves = job.job->edge_bandwidth.limited() && problem.cluster->num_links() > 0;
    if (workers[i] < worker_limit(job) && (job.job->max_racks > 0 || reserves)) {
      return false;
    }
  }
  return all_have_targets || all_rigid;
}

}  // namespace maypole::sched
