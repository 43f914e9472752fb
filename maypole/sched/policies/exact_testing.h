// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of exact and offline: random cases, and answers by enumerating all rings.

#include "maypole/sched/slot_problem.h"

#include "maypole/base/rng.h"

#include <string>
#include <vector>

namespace maypole::sched {

/// A slot's problem with all that it borrows.
struct TinyCase {
  model::Cluster cluster;
  std::vector<model::Job> jobs;
  std::vector<double> progress;           // [job], so far
  std::vector<model::Embedding> current;  // [job]; an empty ring: not running

  [[nodiscard]] SlotProblem problem() const;
};
using TightCase = TinyCase;

/// Two to four servers in a star, a tree or a graph with cycles, one to three jobs of up to four workers; links often bind.
[[nodiscard]] TinyCase random_tiny_case(base::Rng& rng);

/// The tight instances: 12-16 servers of 1, 2, 4 or 8 GPUs in 2-5 racks, server links of 0.2-5 Gbit/s, uplinks of 4-160, 10-12
/// jobs of up to 16 workers with edges of 0.1-5 Gbit/s, sqrt or log.
[[nodiscard]] TightCase random_tight_case(base::Rng& rng);

/// One way to embed a job: workers on each server, loads of each link, and the gain.
struct TinyOption {
  std::vector<int> counts;
  std::vector<double> loads;
  double gain = 0;
  model::Embedding embedding;
};
/// All rings of the job, every order of servers with repeats and every simple path between neighbours; of those with equal counts, loads
/// and gain one is kept.
[[nodiscard]] std::vector<TinyOption> all_options(const SlotProblem& problem, const ActiveJob& job);

/// The best sum of gains over all choices of options that fit together.
[[nodiscard]] double best_by_enumeration(const SlotProblem& problem);
/// The same where links are not looked at.
[[nodiscard]] double best_without_links(const SlotProblem& problem);

}  // namespace maypole::sched
