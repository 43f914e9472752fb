// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one interface of all policies, and the one place where a name becomes a policy.

#include "maypole/base/rng.h"
#include "maypole/sched/decision.h"
#include "maypole/sched/slot_problem.h"

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace maypole::sched {

/// Decides one slot after the other. A policy may keep state between slots (queues, columns to start from); the same sequence of problems
/// and the same rng give the same sequence of decisions. Not thread-safe.
class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Every answer keeps all capacities (except gadget-paper as published, which says so), takes at most worker_limit() and at least
  /// min_workers per job, and only embeddings whose edges are paths of the cluster. Never fails: what cannot be solved in the limit of
  /// work has a greedy answer, marked `limited`. `seconds` is filled in by the controller.
  [[nodiscard]] virtual Decision decide(const SlotProblem& problem, base::Rng& rng) = 0;
  /// Asked when a decision left every job with the ring it had: for how many further slots decide() would say the same again, provided that
  /// until then no job arrives or ends, no job's worker_limit() and no server changes. The controller may repeat the decision that long
  /// without asking. 0 is always right.
  [[nodiscard]] virtual std::int64_t repeats(const SlotProblem& /*problem*/, const Decision& /*decision*/) const { return 0; }
  /// Forgets what it kept between slots (a new run, or another cluster).
  virtual void reset() {}
};

/// Limits and options that several policies share; each policy ignores what is not its own.
struct PolicyOptions {
  /// Limits of work per slot; what a larger value costs is time, what it brings is a smaller gap.
  std::int64_t max_pivots = 20000;
  std::int64_t max_columns = 2000000;
  std::int64_t max_roundings = 64;
  /// gadget: utility that a waiting job gains per second of waiting, as a share of its own best gain, compounded. A larger rate starts
  /// a job that others pass sooner, and costs mean completion time. 0 switches ageing off; negative: by the job's own length
  /// (gadget_candidate.h), and off where the run has a horizon, since what counts then is the utility at its end.
  double ageing_per_s = -1;
  /// las: accelerator-seconds after which a job falls into the second queue; 0: what the active jobs have attained in the mean, which
  /// fits seconds as well as days; negative: continuous (no queues).
  double las_threshold_s = 0;
  /// las, and the other rigid policies: place rings by topology (fewest racks, fullest servers) in place of the paper's greedy.
  bool topology_aware = false;
  /// exact: nodes of the branch and bound at most; cut there, the best choice stands with its proven bound, marked `limited`.
  std::int64_t exact_nodes = 20'000;
  /// gadget-paper: u_b, roundings at most; and which of its two results runs.
  int paper_roundings = 20;
  bool paper_as_published =
      false;  // true: violations stand and are counted; false: drawn rings that do not fit are dropped in order of arrival
};

using PolicyFactory = std::function<std::unique_ptr<Policy>(const PolicyOptions&)>;

/// Makes a policy of one's own known by name, to everything that takes names; it ignores what of the options it does not need. Before
/// the first call of the two below, from one thread. The name is a new one.
void add_policy(std::string name, PolicyFactory make);
/// The names that make_policy takes, in the order in which people should see them.
[[nodiscard]] std::vector<std::string> policy_names();
/// Error (kInvalidArgument) for an unknown name, with the list of those that exist.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Policy>> make_policy(const std::string& name, const PolicyOptions& options);

}  // namespace maypole::sched
