// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_candidate.h"

#include "maypole/sched/policies/gadget_service_index.h"
#include "maypole/sched/ring_placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace maypole::sched::gadget {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNone = -kInfinity;
// By how much, relative to its value, a running ring is preferred to an equal new one: equal inputs must not make rings move.
constexpr double kKeep = 1e-7;
constexpr double kPresence = 3e-4;  // of its best gain, for any job that runs
constexpr double kPatience = 2;     // times its length: the time in which the worth of a waiting job grows by e
constexpr double kLeastPatienceS = 7200;
constexpr double kPatienceOfUnknownS = 2 * 86400;  // where the length is not known
// Where lengths are hidden: what speaks for a job that runs, times its gain. Else jobs of about the same prospects take turns, and all end
// late. (Mean completion time on cluster09 of Microsoft's: 0.99 of the best `las`, without it 1.5.)
constexpr double kInService = 3;
// How much more the progress of a job counts that needs every slot it has left to reach the end of its hull's chord.
constexpr double kUrgency = 2;
constexpr double kMostAge = 30;  // beyond it, e-foldings of age would drown all else in rounding

bool completes(const model::Job& job) { return job.utility.kind == model::UtilityKind::kLinear && job.work.has_value(); }

// The seconds that the job has spent waiting in all, as far as the problem tells: it keeps its age when it runs, or it would be stopped
// as soon as it had started.
double seconds_waited(const ActiveJob& active, const SlotProblem& problem) {
  const int workers = active.running() ? active.current->workers() : active.job->min_workers;
  const double here = problem.start_s() - active.job->arrival_s;
  return std::max({0.0, active.waiting_s, here - active.worker_slots * problem.slot_s / workers});
}

// Per second.
double ageing_rate(const ActiveJob& active, const SlotProblem& problem, const CandidateOptions& options) {
  if (options.ageing_per_s >= 0) {
    return options.ageing_per_s;
  }
  if (std::isfinite(active.remaining_slots)) {
    return 0;
  }
  const double rate = best_rate(active, active.job->max_workers, problem.slot_s);
  if (!active.job->work || !(rate > 0)) {
    return 1 / kPatienceOfUnknownS;
  }
  return 1 / std::max(kLeastPatienceS, kPatience * *active.job->work / rate * problem.slot_s);
}

// Workers of that demand that all servers together hold, never mind their borders.
double pooled_limit(const model::Job& job, const model::Cluster& cluster) {
  double limit = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < job.demand.size(); ++i) {
    const auto r = model::ResourceId::from_index(i);
    if (job.demand[r] > 0) {
      limit = std::min(limit, std::floor(cluster.total_capacity()[r] / job.demand[r] * (1 + 1e-9)));
    }
  }
  return limit;
}

void fill_tables(Candidate& candidate) {
  const auto size = static_cast<std::size_t>(candidate.limit) + 1;
  candidate.local.assign(size, kNone);
  candidate.spread.assign(size, kNone);
  candidate.local[0] = 0;
  candidate.spread[0] = 0;
  const model::ProgressModel& progress = candidate.job->progress;
  for (int w = candidate.min; w <= candidate.limit; ++w) {
    const auto at = static_cast<std::size_t>(w);
    candidate.local[at] = candidate.value(w, 1);
    if (progress.depends_on_workers_only()) {
      candidate.spread[at] = candidate.local[at];
    } else if (w > 1 && progress.kind != model::ProgressKind::kTable) {
      candidate.spread[at] = candidate.value(w, 2);
    } else if (w > 1) {
      for (const model::RatePoint& point : progress.points) {
        candidate.spread[at] = std::max(candidate.spread[at], candidate.value(w, std::clamp(point.servers, 2, w)));
      }
    }
  }
}

// Monotone chain over the best value of each number of workers, up to the largest value (more workers than that are never wanted).
void fill_hull(Candidate& candidate) {
  candidate.hull = {{0, 0}};
  for (int w = candidate.min; w <= candidate.limit; ++w) {
    const Vertex vertex{w, candidate.at_best(w)};
    if (vertex.value <= candidate.hull.back().value) {
      continue;
    }
    while (candidate.hull.size() >= 2) {
      const Vertex& last = candidate.hull.back();
      const Vertex& before = candidate.hull[candidate.hull.size() - 2];
      if ((last.value - before.value) * (vertex.workers - last.workers) > (vertex.value - last.value) * (last.workers - before.workers)) {
        break;
      }
      candidate.hull.pop_back();
    }
    candidate.hull.push_back(vertex);
  }
  candidate.best = candidate.hull.back().value;
}

}  // namespace

double Candidate::change_cost(double gained, double progress) const {
  if (cost_share == 0) {
    return 0;
  }
  double slots = std::min(kSlotsHeld, active->remaining_slots);
  if (job->work && progress > 0) {
    slots = std::min(slots, (*job->work - active->progress) / progress);
  }
  return gained * std::min(1.0, cost_share / std::max(1.0, slots));
}

double Candidate::changed_gain(const model::RingShape& shape) const {
  const double progress = slot_progress(*active, shape, /*resized=*/false, slot_s);
  const double gained = gain_factor * gain(progress);
  if (!active->running() || cost_share == 0) {
    return gained;
  }
  // Never less than what the slot itself brings, so that a bound on the objective is one on the slot's utility as well.
  return std::max(gained - change_cost(gained, progress), gain_factor * gain(slot_progress(*active, shape, /*resized=*/true, slot_s)));
}

double Candidate::value(int workers, int servers) const { return changed_gain({workers, servers, job->edge_bandwidth}) + bonus; }

double Candidate::at_best(int workers) const {
  const auto at = static_cast<std::size_t>(workers);
  const double changed = std::max(local[at], spread[at]);
  return keepable && active->current->workers() == workers ? std::max(changed, keep_value) : changed;
}

std::vector<Candidate> make_candidates(const SlotProblem& problem, const CandidateOptions& options) {
  std::optional<ServiceIndex> index;  // of hidden lengths
  double least = kInfinity;
  if (options.blind) {
    index.emplace(problem);
    for (const ActiveJob& active : problem.jobs) {
      least = std::min(least, (*index)(active.attained_s));
    }
  }
  std::vector<Candidate> candidates;
  candidates.reserve(problem.jobs.size());
  for (const ActiveJob& active : problem.jobs) {
    const model::Job& job = *active.job;
    const bool convex = !job.utility.concave();
    Candidate& candidate =
        candidates.emplace_back(HullGain(active, convex ? reachable_progress(active, problem.slot_s) : 0, problem.start_s()));
    candidate.active = &active;
    candidate.job = &job;
    candidate.min = job.min_workers;
    candidate.bandwidth = job.edge_bandwidth.bytes_per_second;
    candidate.slot_s = problem.slot_s;
    candidate.cost_share = job.progress.resize_s / problem.slot_s;
    candidate.max_racks = rack_limit(active, *problem.cluster);
    candidate.limit = static_cast<int>(std::min<double>(worker_limit(active), pooled_limit(job, *problem.cluster)));
    // Factors of at least 1: the objective is never less than the utility.
    if (completes(job)) {
      candidate.gain_factor = *job.work / std::max(1e-9 * *job.work, *job.work - active.progress);
    } else if (index && job.utility.kind == model::UtilityKind::kLinear) {
      candidate.gain_factor = (*index)(active.attained_s) / least;
    } else if (candidate.gain.chord() > 0 && std::isfinite(active.remaining_slots)) {
      const double slots_needed = candidate.gain.chord() / best_rate(active, job.max_workers, problem.slot_s);
      candidate.gain_factor = 1 + kUrgency * std::min(1.0, slots_needed / active.remaining_slots);
    }
    if (candidate.limit < candidate.min) {
      candidate.limit = 0;
    }
    fill_tables(candidate);
    double held = 0;  // what stopping it would throw away, beyond the gain
    if (candidate.limit > 0 && active.running()) {
      const model::RingShape shape = model::shape_of(*active.current);
      if (shape.workers >= candidate.min && shape.workers <= candidate.limit) {
        const double progress = slot_progress(active, shape, /*resized=*/false, problem.slot_s);
        const double gained = candidate.gain_factor * candidate.gain(progress);
        candidate.keepable = true;
        candidate.keep_value = gained * (1 + kKeep) + candidate.change_cost(gained, progress);
        held = options.blind ? kInService * gained : 0;
      }
    }
    if (candidate.limit > 0) {
      fill_hull(candidate);
      candidate.bonus =
          candidate.best *
              (kPresence + std::expm1(std::min(kMostAge, ageing_rate(active, problem, options) * seconds_waited(active, problem)))) +
          held;
      for (int w = candidate.min; w <= candidate.limit; ++w) {
        candidate.local[static_cast<std::size_t>(w)] += candidate.bonus;
        candidate.spread[static_cast<std::size_t>(w)] += candidate.bonus;
      }
      candidate.keep_value += candidate.bonus;
    }
    fill_hull(candidate);
  }
  return candidates;
}

}  // namespace maypole::sched::gadget
