// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/horizon_bound.h"

#include "maypole/sched/concave_hull.h"
#include "maypole/sim/reach_alone.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

namespace maypole::sim {

namespace {

using model::ResourceId;

// Jobs times slots above which pricing would take longer than people wait for.
constexpr double kLargest = 2e6;
constexpr int kRounds = 2;
constexpr double kShrink = 0.7;  // from one number of first slots to the next
constexpr double kLargestFactor = 1.5;
constexpr int kFactors = 12;  // golden sections for a factor
constexpr int kBisections = 40;
constexpr int kSections = 60;  // of the golden-section search for how much of the last slot a job takes

struct PricedJob {
  sched::ActiveJob view;
  std::optional<sched::HullGain> hull;
  std::vector<double> use;  // [resource]: per progress
  std::size_t first = 0;    // slot
  double rate = 0;          // R
  double reach = 0;         // Z
  double most = 0;          // utility gained at Z

  [[nodiscard]] double gain(double progress) const { return std::min((*hull)(progress), most); }
};

class Dual {
 public:
  explicit Dual(const model::Instance& instance)
      : slots_(static_cast<std::size_t>(instance.slots)), resources_(instance.cluster.num_resources()) {
    for (std::size_t r = 0; r < resources_; ++r) {
      capacity_.push_back(instance.cluster.total_capacity()[ResourceId::from_index(r)]);
    }
    jobs_.reserve(instance.jobs.size());  // the hulls point into it
    for (const model::Job& job : instance.jobs) {
      add(job, instance);
    }
  }

  /// D at these prices, [slot * resources + resource]; `slack` becomes its subgradient.
  double value(const std::vector<double>& prices, std::vector<double>& slack) {
    double sum = base_;
    for (std::size_t t = 0; t < slots_; ++t) {
      for (std::size_t r = 0; r < resources_; ++r) {
        slack[t * resources_ + r] = capacity_[r];
        sum += capacity_[r] * prices[t * resources_ + r];
      }
    }
    for (const PricedJob& job : jobs_) {
      sum += best(job, prices, slack);
    }
    return sum;
  }

  [[nodiscard]] std::size_t num_prices() const { return slots_ * resources_; }
  [[nodiscard]] const std::vector<double>& capacity() const { return capacity_; }
  [[nodiscard]] std::size_t num_resources() const { return resources_; }

 private:
  void add(const model::Job& job, const model::Instance& instance) {
    base_ += job.value(0);
    const BestRate best = best_rate(job, instance.cluster, instance.slot_s);
    const double first = std::ceil(job.arrival_s / instance.slot_s - 1e-9);
    if (best.per_slot <= 0 || first >= static_cast<double>(slots_)) {
      return;
    }
    PricedJob& priced = jobs_.emplace_back();
    priced.first = static_cast<std::size_t>(first);
    priced.rate = best.per_slot;
    priced.reach = (static_cast<double>(slots_) - first) * best.per_slot;
    if (job.budget) {
      priced.reach = std::min(priced.reach, std::floor(*job.budget + 1e-9) * best.per_worker_slot);
    }
    if (job.work) {
      priced.reach = std::min(priced.reach, *job.work);
    }
    priced.most = reach_alone(job, instance) - job.value(0);
    for (std::size_t r = 0; r < resources_; ++r) {
      priced.use.push_back(job.demand[ResourceId::from_index(r)] / best.per_worker_slot);
    }
    priced.view.job = &job;
    priced.hull.emplace(priced.view, priced.reach, first * instance.slot_s);
  }

  /// The job's best answer to the prices: whole slots from the cheapest on, then a part of one. Takes its use from `slack`.
  double best(const PricedJob& job, const std::vector<double>& prices, std::vector<double>& slack) {
    costs_.clear();
    for (std::size_t t = job.first; t < slots_; ++t) {
      double cost = 0;
      for (std::size_t r = 0; r < resources_; ++r) {
        cost += job.use[r] * prices[t * resources_ + r];
      }
      costs_.emplace_back(cost, t);
    }
    std::ranges::sort(costs_);
    double progress = 0;
    double gained = 0;
    double paid = 0;
    for (const auto& [cost, t] : costs_) {
      const double room = std::min(job.rate, job.reach - progress);
      if (room <= 0) {
        break;
      }
      const double whole = job.gain(progress + room);
      double part = room;
      double after = whole;
      // Concave: the whole slot is best exactly where its last bit still pays.
      const double last = room * 1e-6;
      const bool all_pays = whole - job.gain(progress + room - last) >= cost * last;
      if (!all_pays) {
        part = best_part(job, progress, room, cost);
        after = job.gain(progress + part);
      }
      if (part > 0 && after - gained > cost * part) {
        paid += cost * part;
        gained = after;
        progress += part;
        for (std::size_t r = 0; r < resources_; ++r) {
          slack[t * resources_ + r] -= job.use[r] * part;
        }
      }
      if (!all_pays) {
        break;
      }
    }
    return gained - paid;
  }

  static double best_part(const PricedJob& job, double progress, double room, double cost) {
    constexpr double kGolden = 0.6180339887498949;
    double low = 0;
    double high = room;
    for (int i = 0; i < kSections; ++i) {
      const double left = high - kGolden * (high - low);
      const double right = low + kGolden * (high - low);
      if (job.gain(progress + left) - cost * left < job.gain(progress + right) - cost * right) {
        low = left;
      } else {
        high = right;
      }
    }
    return (low + high) / 2;
  }

  std::size_t slots_;
  std::size_t resources_;
  std::vector<double> capacity_;
  std::vector<PricedJob> jobs_;
  std::vector<std::pair<double, std::size_t>> costs_;
  double base_ = 0;
};

/// The same price for every slot, in proportion to the resources' scarcity: where use first falls to what there is.
std::vector<double> even_prices(Dual& dual, std::vector<double>& slack) {
  const std::size_t resources = dual.num_resources();
  const auto prices_at = [&](double level) {
    std::vector<double> prices(dual.num_prices());
    for (std::size_t i = 0; i < prices.size(); ++i) {
      const double capacity = dual.capacity()[i % resources];
      prices[i] = capacity > 0 ? level / capacity : 0;
    }
    return prices;
  };
  const auto is_short = [&](double level) {
    (void)dual.value(prices_at(level), slack);
    std::vector<double> left(resources, 0);
    for (std::size_t i = 0; i < slack.size(); ++i) {
      left[i % resources] += slack[i];
    }
    return std::ranges::any_of(left, [](double sum) { return sum < 0; });
  };
  if (!is_short(0)) {
    return prices_at(0);
  }
  double high = 1;
  while (is_short(high) && high < 1e30) {
    high *= 4;
  }
  double low = 0;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    (is_short(middle) ? low : high) = middle;
  }
  return prices_at(high);
}

/// Scales the prices of the first `count` slots by what lowers D most; returns that D.
double scale_first(Dual& dual, std::size_t count, std::vector<double>& prices, double best) {
  constexpr double kGolden = 0.6180339887498949;
  std::vector<double> slack(dual.num_prices());
  const std::size_t end = count * dual.num_resources();
  const auto scaled = [&](double factor) {
    std::vector<double> tried = prices;
    for (std::size_t i = 0; i < end; ++i) {
      tried[i] *= factor;
    }
    return tried;
  };
  double low = 0;
  double high = kLargestFactor;
  double left = high - kGolden * (high - low);
  double right = low + kGolden * (high - low);
  double at_left = dual.value(scaled(left), slack);
  double at_right = dual.value(scaled(right), slack);
  for (int i = 0; i < kFactors; ++i) {
    if (at_left < at_right) {
      high = right;
      right = left;
      at_right = at_left;
      left = high - kGolden * (high - low);
      at_left = dual.value(scaled(left), slack);
    } else {
      low = left;
      left = right;
      at_left = at_right;
      right = low + kGolden * (high - low);
      at_right = dual.value(scaled(right), slack);
    }
  }
  if (std::min(at_left, at_right) < best) {
    prices = scaled(at_left < at_right ? left : right);
    best = std::min(at_left, at_right);
  }
  return best;
}

}  // namespace

HorizonBound horizon_bound(const model::Instance& instance) {
  HorizonBound bound;
  bound.reach_alone = sum_of_reach_alone(instance);
  bound.value = bound.reach_alone;
  if (instance.slots == 0 || static_cast<double>(instance.jobs.size()) * instance.slots > kLargest) {
    return bound;
  }
  bound.priced = true;
  Dual dual(instance);
  std::vector<double> slack(dual.num_prices());
  std::vector<double> prices = even_prices(dual, slack);
  double best = dual.value(prices, slack);
  for (int round = 0; round < kRounds; ++round) {
    // From the whole horizon down: prices rise in time, as whoever could use a slot can use all later ones.
    for (double count = instance.slots; count >= 1; count *= kShrink) {
      best = scale_first(dual, static_cast<std::size_t>(count), prices, best);
    }
  }
  bound.value = std::min(bound.value, best * (1 + 1e-9));
  return bound;
}

}  // namespace maypole::sim
