// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper_decomposition.h"

#include <algorithm>

namespace maypole::sched {

WeightedMappings weighted_mappings(WeightedMappings columns) {
  for (std::vector<WeightedMapping>& of_job : columns) {
    std::erase_if(of_job, [](const WeightedMapping& mapping) { return mapping.weight <= 1e-9; });
    double sum = 0;
    for (const WeightedMapping& mapping : of_job) {
      sum += mapping.weight;
    }
    for (WeightedMapping& mapping : of_job) {
      mapping.weight /= std::max(1.0, sum);
    }
  }
  return columns;
}

}  // namespace maypole::sched
