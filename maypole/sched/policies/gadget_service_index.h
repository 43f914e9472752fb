// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a second of service is worth to a job whose length is not known: the Gittins index of the service it has received,
//
//   G(a) = max over d > 0 of  P(it ends within the next d | it has had a)  /  E(what it uses of d | it has had a),
//
// by the jobs that have ended and those that are there (service_history.h). Where lengths vary little, who has had most comes first, and
// jobs run through; where few are very long, who has had least; nothing says beforehand which of the two a cluster is. To serve by the
// largest index has the least mean completion time on one server that can be shared (Gittins 1989).
//
// What has been seen counts as if there had been one job more, of a length by the power law that has no scale but the slot: where nothing
// has been seen, who has had least comes first. Within a bin, which spans a factor of two, all are equal, so they do not take turns.

#include "maypole/sched/service_history.h"
#include "maypole/sched/slot_problem.h"

#include <array>

namespace maypole::sched::gadget {

class ServiceIndex {
 public:
  explicit ServiceIndex(const SlotProblem& problem);
  /// Per accelerator-second, of a job that has had so much.
  [[nodiscard]] double operator()(double service_s) const;

 private:
  std::array<double, ServiceHistory::kBins> index_ = {};
};

}  // namespace maypole::sched::gadget
