// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact_covers.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace maypole::sched {

namespace {

constexpr double kViolation = 1e-4;

// Loads that differ by rounding only are equal: a cover must exceed the capacity by more than what counts as fitting.
bool exceeds(double load, double capacity) { return load > capacity * (1 + 1e-8); }

// Lifts the cover over all other jobs, those with the largest z first.
Cover lift(const std::vector<std::size_t>& members, std::span<const double> bandwidth, double capacity, std::span<const double> z) {
  Cover cover;
  cover.coefficients.assign(bandwidth.size(), 0);
  cover.right = static_cast<double>(members.size()) - 1;
  const std::size_t right = members.size() - 1;
  // least[k]: least bandwidth of jobs with coefficients so far whose coefficients sum to at least k.
  std::vector<double> least(right + 1, std::numeric_limits<double>::infinity());
  least[0] = 0;
  const auto include = [&](double load, std::size_t coefficient) {
    for (std::size_t k = right + 1; k-- > 0;) {
      const std::size_t before = k > coefficient ? k - coefficient : 0;
      if (k > 0) {
        least[k] = std::min(least[k], least[before] + load);
      }
    }
  };
  for (const std::size_t i : members) {
    cover.coefficients[i] = 1;
    include(bandwidth[i], 1);
  }
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < bandwidth.size(); ++i) {
    if (cover.coefficients[i] == 0 && bandwidth[i] > 0) {
      others.push_back(i);
    }
  }
  std::ranges::stable_sort(others, std::ranges::greater{}, [&](std::size_t i) { return z[i]; });
  for (const std::size_t j : others) {
    // The most that the others can reach in what j leaves.
    std::size_t reach = 0;
    if (exceeds(bandwidth[j], capacity)) {
      continue;  // it never crosses
    }
    while (reach < right && !exceeds(least[reach + 1] + bandwidth[j], capacity)) {
      ++reach;
    }
    if (const std::size_t coefficient = right - reach; coefficient > 0) {
      cover.coefficients[j] = static_cast<double>(coefficient);
      include(bandwidth[j], coefficient);
    }
  }
  return cover;
}

double violation(const Cover& cover, std::span<const double> z) {
  return std::inner_product(z.begin(), z.end(), cover.coefficients.begin(), 0.0) - cover.right;
}

}  // namespace

std::optional<Cover> separate_cover(std::span<const double> bandwidth, double capacity, std::span<const double> z) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < bandwidth.size(); ++i) {
    if (bandwidth[i] > 0 && !exceeds(bandwidth[i], capacity)) {
      order.push_back(i);
    }
  }
  std::optional<Cover> best;
  const auto consider = [&](std::vector<std::size_t> members) {
    double load = 0;
    std::size_t size = 0;
    while (size < members.size() && !exceeds(load, capacity)) {
      load += bandwidth[members[size++]];
    }
    if (!exceeds(load, capacity)) {
      return;
    }
    members.resize(size);
    // Without those that it does not need, the least used first.
    std::ranges::stable_sort(members, {}, [&](std::size_t i) { return z[i]; });
    for (std::size_t k = 0; k < members.size();) {
      if (exceeds(load - bandwidth[members[k]], capacity)) {
        load -= bandwidth[members[k]];
        members.erase(members.begin() + static_cast<std::ptrdiff_t>(k));
      } else {
        ++k;
      }
    }
    Cover cover = lift(members, bandwidth, capacity, z);
    if (violation(cover, z) > (best ? violation(*best, z) : kViolation)) {
      best = std::move(cover);
    }
  };
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return z[i]; });
  consider(order);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return (1 - z[i]) / bandwidth[i]; });
  consider(order);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return z[i] * bandwidth[i]; });
  consider(order);
  return best;
}

}  // namespace maypole::sched
