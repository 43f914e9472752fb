// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/start_estimate.h"

#include "maypole/sched/remaining_time.h"
#include "maypole/sched/ring_placement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

namespace maypole::sched {

namespace {

// Servers looked at, at most, each search counted as all of them: about a second. A long queue behind many ends is not worth more.
constexpr std::size_t kMaxVisits = 20'000'000;

/// Slots that the job still runs on a ring, at least one; none where it has no end.
std::optional<std::int64_t> slots_to_end(const RemainingTime& remaining, const ActiveJob& job, int workers) {
  const double slots = remaining.slots(job, workers);
  if (!(slots < 1e12)) {
    return std::nullopt;
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(slots * (1 - 1e-9))));
}

struct Running {
  std::size_t position;
  model::Embedding ring;
};

}  // namespace

std::vector<std::optional<std::int64_t>> estimated_starts(const SlotProblem& problem, const Decision& decision,
                                                          std::span<const WaitingJob> waiting) {
  const RemainingTime remaining(problem);
  RingPlacer placer(*problem.cluster, RingStyle::kTopology);
  std::unordered_map<std::int32_t, std::size_t> position;
  for (std::size_t i = 0; i < problem.jobs.size(); ++i) {
    position.emplace(problem.jobs[i].id.value(), i);
  }
  std::multimap<std::int64_t, Running> ends;  // by the first slot in which the ring is free again
  const auto run = [&](std::int64_t slot, std::size_t i, const model::Embedding& ring) {
    placer.take(*problem.jobs[i].job, ring);
    if (const std::optional<std::int64_t> slots = slots_to_end(remaining, problem.jobs[i], ring.workers())) {
      ends.emplace(slot + *slots, Running{i, ring});
    }
  };
  for (const Placement& placement : decision.placements) {
    run(problem.slot, position.at(placement.job.value()), placement.embedding);
  }
  std::set<std::int64_t> lifted;  // slots in which a limit of racks has ended
  for (const WaitingJob& job : waiting) {
    const ActiveJob& active = problem.jobs[job.position];
    if (rack_limit(active, *problem.cluster) > 0 && active.job->max_racks_s > 0) {
      lifted.insert(problem.slot + static_cast<std::int64_t>(std::ceil((active.job->max_racks_s - active.waiting_s) / problem.slot_s)));
    }
  }
  std::vector<std::optional<std::int64_t>> starts(waiting.size());
  std::size_t left = waiting.size();
  std::size_t visits = 0;
  for (std::int64_t slot = problem.slot + 1; left > 0 && visits < kMaxVisits;) {
    while (!ends.empty() && ends.begin()->first <= slot) {
      const Running& ended = ends.begin()->second;
      placer.give_back(*problem.jobs[ended.position].job, ended.ring);
      ends.erase(ends.begin());
    }
    for (std::size_t k = 0; k < waiting.size() && visits < kMaxVisits; ++k) {
      if (starts[k] || waiting[k].workers == 0) {
        continue;
      }
      ActiveJob job = problem.jobs[waiting[k].position];
      job.waiting_s += static_cast<double>(slot - problem.slot) * problem.slot_s;
      visits += problem.cluster->num_servers();
      if (const std::optional<model::Embedding> ring = placer.place(job, waiting[k].workers)) {
        starts[k] = slot;
        --left;
        run(slot, waiting[k].position, *ring);
      }
    }
    lifted.erase(lifted.begin(), lifted.upper_bound(slot));
    if (ends.empty() && lifted.empty()) {
      break;
    }
    const std::int64_t next_end = ends.empty() ? *lifted.begin() : ends.begin()->first;
    slot = std::max(slot + 1, lifted.empty() ? next_end : std::min(next_end, *lifted.begin()));
  }
  return starts;
}

}  // namespace maypole::sched
