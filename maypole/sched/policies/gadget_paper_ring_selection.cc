// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper_ring_selection.h"

namespace maypole::sched {

std::vector<int> select_rings(const PaperSlot& slot, const PaperRelaxation& relaxation) {
  constexpr double kUsed = 1e-9;  // what the simplex leaves on a size that it does not use
  std::vector<int> selected;
  for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
    int best = 0;
    double best_value = -1;
    for (int k = slot.jobs[i].min_size; k <= slot.jobs[i].max_size; ++k) {
      const double share = relaxation.sizes[i][static_cast<std::size_t>(k)];
      const double value = slot.jobs[i].gain[static_cast<std::size_t>(k)] * share;
      if (share > kUsed && value > best_value) {
        best = k;
        best_value = value;
      }
    }
    selected.push_back(best);
  }
  return selected;
}

}  // namespace maypole::sched
