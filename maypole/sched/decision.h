// SPDX-License-Identifier: Apache-2.0
#pragma once

// A slot's decision: the embedding of every job that runs, and what is known about its quality.

#include "maypole/model/job.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace maypole::sched {

struct Placement {
  model::JobId job;
  model::Embedding embedding;
  bool operator==(const Placement&) const = default;
};

/// Units of a policy's search, in place of seconds: a decision cut at a limit of work repeats bit for bit on any machine.
struct Work {
  std::int64_t pivots = 0;     // simplex iterations
  std::int64_t columns = 0;    // embeddings priced
  std::int64_t roundings = 0;  // integer solutions tried
  bool operator==(const Work&) const = default;
};

struct Decision {
  std::int64_t slot = 0;
  std::vector<Placement> placements;  // by JobId, ascending; only jobs with workers
  double utility = 0;                 // sum of this slot's utility gains
  std::optional<double> objective;    // the same in the policy's own objective, where it has one: bounds and gap are on this scale
  std::optional<double> bound_lp;     // LP relaxation of (12), which does not see links
  std::optional<double> bound;        // the tighter one: only columns that fit alone, with link rows
  std::optional<double> gap;          // (bound - objective) / bound, or of utility without objective; 0 where bound is 0
  bool limited = false;               // a limit of work cut the search: the answer holds, the gap may be wide
  std::string note;  // why a fallback answered, or what the policy measured (gadget-paper: alpha, beta, gamma); may be empty
  Work work;
  double seconds = 0;  // wall-clock, for people and percentiles; not part of what repeats
};

}  // namespace maypole::sched
