// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/dominant_share.h"

#include <algorithm>

namespace maypole::sched {

double dominant_share(const model::Job& job, const model::Cluster& cluster) {
  double share = 0;
  for (std::size_t k = 0; k < job.demand.size(); ++k) {
    const auto r = model::ResourceId::from_index(k);
    if (job.demand[r] > 0) {
      share = std::max(share, cluster.total_capacity()[r] > 0 ? job.demand[r] / cluster.total_capacity()[r] : 1.0);
    }
  }
  return share;
}

}  // namespace maypole::sched
