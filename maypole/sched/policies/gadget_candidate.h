// SPDX-License-Identifier: Apache-2.0
#pragma once

// What `gadget` may do with each active job in a slot, and what each is worth to it: the objective of its own slot problem.
//
//   value(w, servers) = hull gain of the slot's progress                        (concave_hull.h)
//                     - what the change of ring costs, if the job runs           a share resize_s / (slot_s A) of the gain
//                     + (kPresence + exp(age) - 1) * its best gain                (any w >= min_workers)
//   keep              = hull gain on the ring it has + the cost of a restart
//
// A ring is expected to stay for A slots: at least 1, at most kSlotsHeld, at most what the job has left to run. So a change pays where
// it brings more than its cost within A slots, and an eviction where what it makes room for is worth more than the restart.
//
// Age is the time that the job has waited, over the time in which its worth grows by e: 1 / ageing_per_s, or, by default, twice the time
// that it takes with all its workers, at least two hours; a day where its length is unknown. Where the run has a horizon there is no age.
// Age compounds, so that it wins: a job that is worth 1/k of others by the worker can be passed only by those that arrive less than ln(k)
// such times after it, however many they are. Were it linear, an endless stream of jobs worth more would age as well, and win. A job keeps
// its age when it runs: else it would be stopped as soon as it had started.
//
// kPresence decides ties: of equal sums the one in which more jobs run. It is more than what speaks for a ring that stands (kKeep by the
// worker), less than anything that counts.
//
// Three kinds of job are weighed, by a factor of at least 1, because a slot's sum of gains does not tell when they should run:
//   * `linear` with work: every unit of progress is worth the same, so no order of the jobs is better than another but for when they end.
//     Progress counts as its share of what is left: times work / (work left). By worker-slot that is Smith's rule, what completion is
//     worth over the remaining work: short ones first.
//   * `linear` where lengths are hidden: by the Gittins index of its service, over the least of all (gadget_service_index.h). A job that
//     runs has kInService times its gain on top, so that only one of clearly better prospects stops it.
//   * on the chord of a hull, with a horizon: progress is worth the same now and later, but a job that needs nearly all the slots it has
//     left cannot wait, and one that can get there in a few can: times 1 + kUrgency * (slots needed at most workers / slots left).

#include "maypole/sched/concave_hull.h"
#include "maypole/sched/slot_problem.h"

#include <span>
#include <vector>

namespace maypole::sched::gadget {

inline constexpr double kSlotsHeld = 8;

struct Vertex {
  int workers = 0;
  double value = 0;
};

/// One active job as gadget sees it. Worker counts run over 0 and min..limit; limit 0: it cannot run in this slot.
struct Candidate {
  const ActiveJob* active = nullptr;
  const model::Job* job = nullptr;
  int min = 1;
  int limit = 0;
  double bandwidth = 0;        // payload bytes per second of each edge; 0: reserves nothing
  int max_racks = 0;           // 0: any number
  bool keepable = false;       // the running ring is still allowed
  double keep_value = 0;       // of keeping it
  double best = 0;             // the largest value of any choice
  std::vector<double> local;   // [workers] value on one server; 0 at [0], -infinity below min
  std::vector<double> spread;  // [workers] value on several servers; over their number the best one (tables)
  std::vector<Vertex> hull;    // vertices of the concave hull of the best value over the workers, from 0 on

  /// Exact value of a new ring (not of keeping the old one).
  [[nodiscard]] double value(int workers, int servers) const;
  [[nodiscard]] double at_best(int workers) const;  // the better of local and spread; also keep where that has as many workers

  // How values come about: gain per progress (after the hull or Smith's rule), and what is added to it.
  HullGain gain;
  double gain_factor = 1;
  double bonus = 0;       // age and presence, at any w >= min
  double cost_share = 0;  // of a gain that a change of ring, or a restart, costs; before division by the slots held
  double slot_s = 0;

  explicit Candidate(const HullGain& hull_gain) : gain(hull_gain) {}
  /// Gain of a slot on that ring, the change's cost taken off.
  [[nodiscard]] double changed_gain(const model::RingShape& shape) const;
  [[nodiscard]] double change_cost(double gained, double progress) const;
};

struct CandidateOptions {
  double ageing_per_s = 0;  // negative: by the job's length
  bool blind = false;       // lengths are hidden: weigh `linear` by attained service
};

/// [position in problem.jobs].
[[nodiscard]] std::vector<Candidate> make_candidates(const SlotProblem& problem, const CandidateOptions& options);

}  // namespace maypole::sched::gadget
