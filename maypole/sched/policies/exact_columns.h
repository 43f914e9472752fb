// SPDX-License-Identifier: Apache-2.0
#pragma once

// All columns of all jobs, listed: for clusters that are no tree, and for tests.
//
// For every set of servers the undominated loads of limited links are found by the Held-Karp recursion (start server, set visited, last
// server) over sets of load vectors, each step taking any undominated simple path between two servers. Exponential in the number of
// servers: for about eight of them.

#include "maypole/sched/policies/exact_problem.h"

namespace maypole::sched {

struct ExactColumnList {
  std::vector<std::vector<ExactColumn>> of_job;  // [job], with embeddings
  bool complete = true;                          // false: the limit cut the list
};

/// At most `limit` columns and about as many partial rings.
[[nodiscard]] ExactColumnList list_columns(const ExactProblem& problem, std::size_t limit);

/// The ring that the job has now, in every undominated routing that fits alone, where a resize would cost something; else none.
/// At most `limit` routings.
[[nodiscard]] std::vector<ExactColumn> current_columns(const ExactProblem& problem, int job, std::size_t limit);

}  // namespace maypole::sched
