// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/service_history.h"

#include <algorithm>
#include <cmath>

namespace maypole::sched {

std::size_t ServiceHistory::bin_of(double service_s) {
  return service_s < 1 ? 0 : std::min(kBins - 1, static_cast<std::size_t>(std::ilogb(service_s)) + 1);
}

double ServiceHistory::begin_of(std::size_t bin) { return bin == 0 ? 0 : std::ldexp(1.0, static_cast<int>(bin) - 1); }

void ServiceHistory::add(double service_s, bool ended) {
  const std::size_t last = bin_of(service_s);
  for (std::size_t bin = 0; bin < last; ++bin) {
    bins_[bin].passed += width_of(bin);
  }
  bins_[last].passed += service_s - begin_of(last);
  bins_[last].ended += ended ? 1 : 0;
}

}  // namespace maypole::sched
