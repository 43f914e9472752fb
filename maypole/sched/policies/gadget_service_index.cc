// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_service_index.h"

#include <algorithm>
#include <cmath>

namespace maypole::sched::gadget {

namespace {

constexpr std::size_t kBins = ServiceHistory::kBins;

// Rate of ending in a bin, per second of service. The one job more stays beyond a with probability slot / (a + slot).
double hazard(const ServiceHistory& seen, std::size_t bin, double slot_s) {
  const double begin = ServiceHistory::begin_of(bin) + slot_s;
  const double end = ServiceHistory::begin_of(bin + 1) + slot_s;
  return (seen.bins()[bin].ended + slot_s / begin - slot_s / end) / (seen.bins()[bin].passed + slot_s * std::log(end / begin));
}

}  // namespace

ServiceIndex::ServiceIndex(const SlotProblem& problem) {
  ServiceHistory seen = problem.history != nullptr ? *problem.history : ServiceHistory();
  for (const ActiveJob& active : problem.jobs) {
    seen.add(active.attained_s, /*ended=*/false);
  }
  std::array<double, kBins> stays = {};  // the probability to pass the bin
  std::array<double, kBins> uses = {};   // seconds that a job which comes to it spends there, in the mean
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    const double rate = hazard(seen, bin, problem.slot_s);
    stays[bin] = std::exp(-rate * ServiceHistory::width_of(bin));
    uses[bin] = (1 - stays[bin]) / rate;
  }
  for (std::size_t from = 0; from < kBins; ++from) {
    double there = 1;
    double used = 0;
    for (std::size_t bin = from; bin < kBins; ++bin) {
      used += there * uses[bin];
      there *= stays[bin];
      index_[from] = std::max(index_[from], (1 - there) / used);
    }
  }
}

double ServiceIndex::operator()(double service_s) const { return index_[ServiceHistory::bin_of(service_s)]; }

}  // namespace maypole::sched::gadget
