// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_give_back.h"

#include <algorithm>

namespace maypole::sched::gadget {

namespace {

constexpr double kGain = 1e-9;  // relative: less is noise

struct Worth {
  double density = 0;  // per price of a worker
  int job = 0;
};

// What the job would gain by its least ring, and what it would lose by a worker less.
double least_density(const Builder& builder, const Candidate& candidate) {
  return candidate.at_best(candidate.min) / (candidate.min * builder.unit_price(candidate));
}
double last_density(const Builder& builder, const Candidate& candidate, const Ring& ring) {
  return (ring.value - candidate.at_best(ring.workers - 1)) / builder.unit_price(candidate);
}

// Makes room for `job` by what `donors` have to spare; false, and all as it was, where that does not gain.
bool make_room(Builder& builder, const std::vector<Candidate>& candidates, int job, const std::vector<Worth>& donors) {
  double before = 0;
  std::vector<int> taken = {job};
  std::vector<Ring> rings = {{}};
  bool placed = false;
  for (std::size_t k = 0; k < donors.size() && !placed; ++k) {
    const int donor = donors[k].job;
    before += builder.ring(donor).value;
    taken.push_back(donor);
    rings.push_back(builder.ring(donor));
    builder.remove(donor);
    placed = builder.place_least(job);
  }
  double after = 0;
  if (placed) {
    bool all = true;
    for (std::size_t k = 1; k < taken.size(); ++k) {
      all = builder.place_least(taken[k]) && all;
    }
    if (all) {
      builder.fill(taken);
    }
    for (const int one : taken) {
      after += all ? builder.ring(one).value : 0;
    }
  }
  if (after > before + kGain * candidates[static_cast<std::size_t>(job)].best) {
    return true;
  }
  for (const int one : taken) {
    if (!builder.ring(one).parts.empty()) {
      builder.remove(one);
    }
  }
  for (std::size_t k = 1; k < taken.size(); ++k) {
    builder.put(taken[k], std::move(rings[k]));
  }
  return false;
}

}  // namespace

void give_back(Builder& builder, const std::vector<Candidate>& candidates) {
  std::vector<Worth> waiting;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].limit > 0 && builder.rings()[i].parts.empty()) {
      waiting.push_back({least_density(builder, candidates[i]), static_cast<int>(i)});
    }
  }
  if (waiting.empty()) {
    return;
  }
  std::ranges::stable_sort(waiting, std::greater{}, &Worth::density);
  int tried = 0;
  for (const Worth& worth : waiting) {
    std::vector<Worth> donors;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Ring& ring = builder.rings()[i];
      if (ring.workers > candidates[i].min) {
        donors.push_back({last_density(builder, candidates[i], ring), static_cast<int>(i)});
      }
    }
    std::ranges::stable_sort(donors, {}, &Worth::density);
    donors.resize(std::min(donors.size(), kDonors));
    if (donors.empty() || donors.front().density > worth.density * (1 + kGain) || ++tried > kJobsTried) {
      return;
    }
    make_room(builder, candidates, worth.job, donors);
  }
}

}  // namespace maypole::sched::gadget
