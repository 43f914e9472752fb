// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_greedy.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace maypole::sched::gadget {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

struct Worth {
  double keep = kNone;     // of the running ring, after price
  double changed = kNone;  // of the best new ring, after price
  double density = 0;      // of the new ring, per price of its workers
  double keep_density = 0;
};

Worth worth_of(const Candidate& candidate, double unit) {
  Worth worth;
  int workers = 1;
  for (int w = candidate.min; w <= candidate.limit; ++w) {
    const auto at = static_cast<std::size_t>(w);
    const double value = std::max(candidate.local[at], candidate.spread[at]) - unit * w;
    if (value > worth.changed) {
      worth.changed = value;
      workers = w;
    }
  }
  if (candidate.keepable) {
    const int now = candidate.active->current->workers();
    worth.keep = candidate.keep_value - unit * now;
    worth.keep_density = worth.keep / (unit > 0 ? now * unit : 1);
  }
  worth.density = worth.changed / (unit > 0 ? workers * unit : 1);
  return worth;
}

}  // namespace

void build_greedily(Builder& builder, const std::vector<Candidate>& candidates, const model::Amounts& pooled_prices, const Prices& prices,
                    Running running) {
  std::vector<double> units(candidates.size(), 0);
  std::vector<Worth> worths(candidates.size());
  std::vector<int> rest;
  std::vector<int> stopped;
  std::vector<int> all;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    if (candidate.limit == 0) {
      continue;
    }
    for (std::size_t r = 0; r < pooled_prices.size(); ++r) {
      units[i] += pooled_prices[model::ResourceId::from_index(r)] * candidate.job->demand[model::ResourceId::from_index(r)];
    }
    worths[i] = worth_of(candidate, units[i]);
    const int job = static_cast<int>(i);
    all.push_back(job);
    const bool worth_it = running == Running::kAll || (worths[i].keep >= 0 && worths[i].keep >= worths[i].changed);
    if (candidate.keepable && worth_it && builder.keep(job)) {
      continue;
    }
    if (candidate.keepable) {
      stopped.push_back(job);
    }
    rest.push_back(job);
  }
  std::ranges::stable_sort(
      rest, [&](int a, int b) { return worths[static_cast<std::size_t>(a)].density > worths[static_cast<std::size_t>(b)].density; });
  for (const int job : rest) {
    if (worths[static_cast<std::size_t>(job)].changed > 0) {
      builder.place(job, prices);
    }
  }
  std::ranges::stable_sort(stopped, [&](int a, int b) {
    return worths[static_cast<std::size_t>(a)].keep_density > worths[static_cast<std::size_t>(b)].keep_density;
  });
  for (const int job : stopped) {
    const Ring& ring = builder.ring(job);
    if (ring.parts.empty()) {
      builder.keep(job);
    }
  }
  builder.fill(all);
}

}  // namespace maypole::sched::gadget
