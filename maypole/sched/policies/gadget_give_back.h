// SPDX-License-Identifier: Apache-2.0
#pragma once

// Surplus workers are given back for a waiting job's minimum: A, which may have 5 to 10 workers and has 10, shrinks to 9 for B, which needs
// one. By linear utilities that is a tie but for what gadget_candidate.h adds for every job that runs, so prices do not find it.
//
// For each waiting job, best worth per price first: the rings that lose least by a worker less are taken out until the job finds room, it
// takes its least ring, they take theirs again, what is left goes by marginal utility; kept where the sum grew.
//
// Complexity: at most kJobsTried jobs, each with at most kDonors rings, whatever the size of the cluster.

#include "maypole/sched/policies/gadget_builder.h"

#include <vector>

namespace maypole::sched::gadget {

inline constexpr int kJobsTried = 16;
inline constexpr std::size_t kDonors = 8;

void give_back(Builder& builder, const std::vector<Candidate>& candidates);

}  // namespace maypole::sched::gadget
