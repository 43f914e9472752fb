// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_search.h"

#include <algorithm>

namespace maypole::sched::gadget {

namespace {

constexpr int kMostVictims = 6;
constexpr double kGain = 1e-9;  // relative: less is no improvement

// Which jobs have workers in which rack; kept up to date by the steps.
class Residents {
 public:
  Residents(const Builder& builder, std::size_t num_jobs)
      : builder_(&builder), racks_(static_cast<std::size_t>(builder.topology().num_racks())) {
    for (std::size_t i = 0; i < num_jobs; ++i) {
      add(static_cast<int>(i));
    }
  }
  void add(int job) {
    each_rack(job, [&](std::vector<int>& jobs) {
      if (jobs.empty() || jobs.back() != job) {
        jobs.push_back(job);
      }
    });
  }
  void remove(int job) {
    each_rack(job, [&](std::vector<int>& jobs) {
      const auto found = std::ranges::find(jobs, job);
      if (found != jobs.end()) {
        *found = jobs.back();
        jobs.pop_back();
      }
    });
  }
  [[nodiscard]] const std::vector<int>& of(int rack) const { return racks_[static_cast<std::size_t>(rack)]; }

 private:
  template <typename Visit>
  void each_rack(int job, const Visit& visit) {
    for (const Part& part : builder_->ring(job).parts) {
      visit(racks_[static_cast<std::size_t>(builder_->topology().rack_of(part.server))]);
    }
  }
  const Builder* builder_;
  std::vector<std::vector<int>> racks_;
};

template <typename T>
void shuffle(std::vector<T>& values, base::Rng& rng) {
  for (std::size_t k = values.size(); k > 1; --k) {
    std::swap(values[k - 1], values[static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(k) - 1))]);
  }
}

}  // namespace

bool improve(Builder& builder, const std::vector<Candidate>& candidates, const Prices& prices, const SearchLimits& limits, base::Rng& rng) {
  std::vector<int> able;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].limit > 0) {
      able.push_back(static_cast<int>(i));
    }
  }
  if (able.empty()) {
    return false;
  }
  Residents residents(builder, candidates.size());
  double objective = builder.objective();
  std::int64_t idle = 0;
  const auto draw = [&](std::int64_t below) { return static_cast<std::size_t>(rng.uniform_int(0, below - 1)); };
  for (std::int64_t step = 0; step < limits.steps && idle < limits.patience && objective < limits.enough; ++step, ++idle) {
    if (builder.work().columns >= limits.max_columns) {
      return true;
    }
    // One job, and some that live in a rack of its own (or, if it does not run, in any).
    std::vector<int> victims = {able[draw(static_cast<std::int64_t>(able.size()))]};
    const Ring& first = builder.ring(victims[0]);
    const int rack = first.parts.empty()
                         ? static_cast<int>(draw(builder.topology().num_racks()))
                         : builder.topology().rack_of(first.parts[draw(static_cast<std::int64_t>(first.parts.size()))].server);
    std::vector<int> others = residents.of(rack);
    shuffle(others, rng);
    const std::size_t count = 1 + draw(kMostVictims - 1);
    for (const int job : others) {
      if (victims.size() <= count && job != victims[0]) {
        victims.push_back(job);
      }
    }
    double before = 0;
    std::vector<Ring> saved;
    for (const int job : victims) {
      before += builder.ring(job).value;
      saved.push_back(builder.ring(job));
      residents.remove(job);
      builder.remove(job);
    }
    std::vector<int> order = victims;
    shuffle(order, rng);
    const double scale = rng.uniform(0.0, 1.6);
    for (const int job : order) {
      builder.place(job, prices, scale);
    }
    builder.fill(order);
    double after = 0;
    for (const int job : victims) {
      after += builder.ring(job).value;
    }
    if (after < before) {
      for (const int job : victims) {
        builder.remove(job);
      }
      for (std::size_t k = 0; k < victims.size(); ++k) {
        builder.put(victims[k], std::move(saved[k]));
      }
    } else if (after > before + kGain * objective) {
      idle = -1;
      objective += after - before;
    }
    for (const int job : victims) {
      residents.add(job);
    }
  }
  builder.fill(able);
  return false;
}

void round_columns(Builder& builder, const std::vector<Candidate>& candidates, const ColumnBound& columns, base::Rng& rng) {
  std::vector<Ring> before = builder.rings();
  const double value = builder.objective();
  builder.reset({});
  std::vector<int> order;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].limit > 0) {
      order.push_back(static_cast<int>(i));
    }
  }
  shuffle(order, rng);
  for (const int job : order) {
    double left = rng.uniform();
    for (const WeightedRing& column : columns.chosen[static_cast<std::size_t>(job)]) {
      left -= column.weight;
      if (left < 0) {
        builder.put_if_it_fits(job, column.ring);
        break;
      }
    }
  }
  for (const int job : order) {
    if (builder.ring(job).parts.empty()) {
      builder.place(job, columns.prices);
    }
  }
  builder.fill(order);
  if (builder.objective() < value) {
    builder.reset(std::move(before));
  }
}

}  // namespace maypole::sched::gadget
