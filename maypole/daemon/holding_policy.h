// SPDX-License-Identifier: Apache-2.0
#pragma once

// The daemon's rule around any policy: within a slot what runs keeps its ring, and the policy divides what is free among those that wait.
// Where a slot begins, jobs whose workers can come and go take part with the ring that they have, and the policy may choose another one,
// but not none. Such a change is taken if it lets a job start that would wait otherwise, or if it pays: if the slot's utility, less what
// the change of rings costs, is larger by kWorthwhile.
//
// The controller asks at every step of the daemon's clock, which is much shorter than a slot; the policy is asked as if a whole slot
// began, about a cluster of which the held rings have been taken away. Two things more are the same for every policy: a waiting job's
// weight doubles every `age_s`, and once it has doubled twice and the job still does not fit, nothing lighter starts before it: so nobody
// starves. And of the waiting jobs that would fit only the heaviest are offered (then the oldest), so that a decision over a queue of ten
// thousand takes no longer than one over a queue of a few hundred.

#include "maypole/sched/policy.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace maypole::daemon {

struct Held {
  model::Embedding ring;                         // decided
  std::optional<model::Embedding> leaving = {};  // what it had before, and may have still
  bool resizable = false;                        // another ring may be chosen where a slot begins
};
/// What has been decided; the daemon's core adds and removes it.
using HeldRings = std::map<model::JobId, Held>;

/// What a job takes: on each server and link the larger of what its rings need.
struct Taken {
  const model::Job* job = nullptr;
  const model::Embedding* ring = nullptr;     // may be null
  const model::Embedding* leaving = nullptr;  // may be null
};
/// Servers on which nothing may start; what runs there keeps its ring.
using ClosedServers = std::set<model::ServerId>;

struct HoldingOptions {
  double slot_s = 60;  // that the policy plans for
  double age_s = 600;  // in which a waiting job's weight doubles; 0: never
  std::size_t most_candidates = 256;
};

/// `held` and `closed` outlive the policy.
[[nodiscard]] std::unique_ptr<sched::Policy> make_holding_policy(std::unique_ptr<sched::Policy> inner, const HeldRings* held,
                                                                 const ClosedServers* closed, const HoldingOptions& options);

/// The cluster with nothing on the closed servers.
[[nodiscard]] model::Cluster open_part(const model::Cluster& cluster, const ClosedServers& closed);

inline constexpr double kWorthwhile = 0.02;

/// The cluster without what is taken. A link that is full keeps one byte a second, which no job can live on: links with nothing
/// are not part of a cluster.
[[nodiscard]] model::Cluster without(const model::Cluster& cluster, const std::vector<Taken>& taken);
/// Whether that is free in a cluster that without() made.
[[nodiscard]] bool has_room(const model::Cluster& free, const Taken& wanted);

}  // namespace maypole::daemon
