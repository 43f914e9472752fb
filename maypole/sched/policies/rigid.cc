// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/rigid.h"

#include "maypole/base/check.h"
#include "maypole/sched/assemble.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace maypole::sched {

namespace {

using model::Amounts;
using model::Embedding;
using model::ResourceId;

int rigid_workers(const ActiveJob& job) { return worker_limit(job) >= job.job->workers ? job.job->workers : 0; }

/// A ring that found no place. One that asks for no less of anything finds none either: what more important jobs leave only shrinks.
struct Failed {
  const model::Job* job;
  int racks;
};

class RigidPass {
 public:
  RigidPass(const SlotProblem& problem, std::span<const std::size_t> order, RingStyle style)
      : problem_(problem),
        order_(order),
        placer_(*problem.cluster, style),
        rings_(problem.jobs.size()),
        free_(problem.cluster->total_capacity()),
        held_(problem.cluster->num_resources(), 0) {}

  Decision run() {
    hold_running();
    for (std::size_t at = 0; at < order_.size(); ++at) {
      const std::size_t i = order_[at];
      const ActiveJob& job = problem_.jobs[i];
      if (rings_[i]) {
        add(held_, job, -1);  // nobody may take it from here on
      } else if (rigid_workers(job) > 0 && !is_hopeless(job) && !start(i) && !start_by_eviction(at)) {
        failed_.push_back({job.job, rack_limit(job, *problem_.cluster)});
      }
    }
    return assemble(problem_, std::move(rings_));
  }

 private:
  void hold_running() {
    for (const std::size_t i : order_) {
      const ActiveJob& job = problem_.jobs[i];
      if (job.running() && job.current->workers() == rigid_workers(job) && placer_.fits(*job.job, *job.current)) {
        take(i, *job.current);
        add(held_, job, 1);
      }
    }
  }

  [[nodiscard]] bool is_hopeless(const ActiveJob& job) const {
    const int racks = rack_limit(job, *problem_.cluster);
    return std::ranges::any_of(failed_, [&](const Failed& failed) {
      const bool freer = failed.racks == 0 || (racks > 0 && racks <= failed.racks);
      return freer && job.job->workers >= failed.job->workers && job.job->edge_bandwidth >= failed.job->edge_bandwidth &&
             std::ranges::equal(job.job->demand, failed.job->demand, std::ranges::greater_equal{});
    });
  }

  bool start(std::size_t i) {
    const ActiveJob& job = problem_.jobs[i];
    if (!pool_holds(job, false)) {
      return false;
    }
    if (job.running() && job.current->workers() == job.job->workers && placer_.fits(*job.job, *job.current)) {
      take(i, *job.current);
      return true;
    }
    const std::optional<Embedding> ring = placer_.place(job, job.job->workers);
    if (ring) {
      take(i, *ring);
    }
    return ring.has_value();
  }

  bool start_by_eviction(std::size_t at) {
    const ActiveJob& job = problem_.jobs[order_[at]];
    if (!pool_holds(job, true)) {
      return false;
    }
    std::vector<std::size_t> evicted;  // the least important first
    bool started = false;
    std::size_t batch = 1;  // doubled: a job that never fits costs few attempts
    std::size_t tail = order_.size();
    while (!started && tail > at + 1) {
      for (std::size_t taken = 0; tail > at + 1 && (taken < batch || !pool_holds(job, false));) {
        const std::size_t victim = order_[--tail];
        if (rings_[victim]) {
          evicted.push_back(victim);
          drop(victim);
          add(held_, problem_.jobs[victim], -1);
          ++taken;
        }
      }
      batch *= 2;
      started = start(order_[at]);
    }
    // Those that need not go stay, the most important first.
    for (std::size_t k = evicted.size(); k-- > 0;) {
      const ActiveJob& victim = problem_.jobs[evicted[k]];
      if (!started || placer_.fits(*victim.job, *victim.current)) {
        take(evicted[k], *victim.current);
        add(held_, victim, 1);
      }
    }
    return started;
  }

  /// Whether what is free on all servers together (and held by jobs that may be evicted) is enough.
  [[nodiscard]] bool pool_holds(const ActiveJob& job, bool with_held) const {
    for (std::size_t k = 0; k < free_.size(); ++k) {
      const ResourceId r = ResourceId::from_index(k);
      const double slack = kFitTolerance * problem_.cluster->total_capacity()[r];
      if (job.job->workers * job.job->demand[r] > free_[r] + (with_held ? held_[r] : 0) + slack) {
        return false;
      }
    }
    return true;
  }

  static void add(Amounts& sum, const ActiveJob& job, double sign) {
    for (std::size_t k = 0; k < sum.size(); ++k) {
      const ResourceId r = ResourceId::from_index(k);
      sum[r] += sign * job.job->workers * job.job->demand[r];
    }
  }

  void take(std::size_t i, const Embedding& ring) {
    placer_.take(*problem_.jobs[i].job, ring);
    add(free_, problem_.jobs[i], -1);
    rings_[i] = ring;
  }

  void drop(std::size_t i) {
    placer_.give_back(*problem_.jobs[i].job, *rings_[i]);
    add(free_, problem_.jobs[i], 1);
    rings_[i].reset();
  }

  const SlotProblem& problem_;
  std::span<const std::size_t> order_;
  RingPlacer placer_;
  std::vector<std::optional<Embedding>> rings_;  // [position in problem.jobs]
  Amounts free_;                                 // of all servers together
  Amounts held_;                                 // by running jobs whose turn is still to come
  std::vector<Failed> failed_;
};

}  // namespace

Decision decide_rigid(const SlotProblem& problem, std::span<const std::size_t> order, RingStyle style) {
  MAYPOLE_CHECK_EQ(order.size(), problem.jobs.size());
  return RigidPass(problem, order, style).run();
}

std::int64_t slots_without_start(const SlotProblem& problem, const Decision& decision, RingStyle style) {
  std::vector<bool> runs(problem.jobs.size(), false);
  std::unordered_map<std::int32_t, std::size_t> position;
  for (std::size_t i = 0; i < problem.jobs.size(); ++i) {
    position.emplace(problem.jobs[i].id.value(), i);
  }
  for (const Placement& placement : decision.placements) {
    runs[position.at(placement.job.value())] = true;
  }
  std::int64_t slots = kForever;
  for (std::size_t i = 0; i < problem.jobs.size(); ++i) {
    const ActiveJob& job = problem.jobs[i];
    if (runs[i] || rigid_workers(job) == 0) {
      continue;
    }
    const bool limited = rack_limit(job, *problem.cluster) > 0;
    const bool reserves = job.job->edge_bandwidth.limited() && problem.cluster->num_links() > 0;
    if (reserves && (limited || style == RingStyle::kGreedy || !problem.cluster->tree())) {
      return 0;
    }
    if (limited && job.job->max_racks_s > 0) {
      const double ends = std::ceil((job.job->max_racks_s - job.waiting_s) / problem.slot_s * (1 - 1e-9));
      slots = std::min(slots, static_cast<std::int64_t>(std::max(0.0, ends - 1)));
    }
  }
  return slots;
}

}  // namespace maypole::sched
