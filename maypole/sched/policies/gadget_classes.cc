// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_classes.h"

#include "maypole/sched/free_capacity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace maypole::sched::gadget {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostClasses = 16;
constexpr int kPatience = 6;  // steps without a better bound before the step is halved

struct ServerClass {
  std::vector<double> largest;  // [resource]: of any member
  std::vector<double> total;    // [resource]
  double count = 0;
  double cut = 0;     // what can leave and enter, added up; infinite where one member has no limit
  double widest = 0;  // of any member
  double largest_cut = 0;
};

class Classes {
 public:
  Classes(const Topology& topology, const std::vector<Candidate>& candidates) : topology_(&topology), candidates_(&candidates) {
    num_resources_ = topology.cluster().num_resources();
    group();
    for (int rack = 0; rack < topology.num_racks(); ++rack) {
      const Topology::Node& node = topology.node(topology.first_rack() + rack);
      rack_cut_ += node.capacity;
      widest_rack_ = std::max(widest_rack_, node.widest);
    }
    if (topology.num_racks() == 1) {
      rack_cut_ = kInfinity;
      widest_rack_ = 0;
    }
    // Rows: amounts of class after class, then cuts, then halves, then the racks.
    rows_ = classes_.size() * (num_resources_ + 2) + 1;
    right_.assign(rows_, 0);
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      for (std::size_t r = 0; r < num_resources_; ++r) {
        right_[amount_row(k, r)] = classes_[k].total[r];
      }
      right_[cut_row(k)] = classes_[k].cut;
      right_[half_row(k)] = classes_[k].count;
    }
    right_[rows_ - 1] = rack_cut_;
    size_racks();
  }

  [[nodiscard]] std::size_t num_rows() const { return rows_; }
  [[nodiscard]] double right(std::size_t row) const { return right_[row]; }

  [[nodiscard]] std::vector<double> start(const model::Amounts& pooled) const {
    std::vector<double> y(rows_, 0);
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      for (std::size_t r = 0; r < num_resources_; ++r) {
        y[amount_row(k, r)] = pooled[model::ResourceId::from_index(r)];
      }
    }
    return y;
  }

  // bound(y), and in `use` what the jobs' best rings use of every row.
  double evaluate(const std::vector<double>& y, std::vector<double>& use) {
    use.assign(rows_, 0);
    double bound = 0;
    for (std::size_t row = 0; row < rows_; ++row) {
      bound += y[row] > 0 ? y[row] * right_[row] : 0;
    }
    for (std::size_t i = 0; i < candidates_->size(); ++i) {
      if ((*candidates_)[i].limit > 0) {
        bound += best_of(i, y, use);
      }
    }
    return bound;
  }

  [[nodiscard]] Prices prices(const std::vector<double>& y) const {
    Prices prices = Prices::zero(*topology_);
    prices.half.assign(prices.cut.size(), 0);
    for (std::size_t s = 0; s < class_of_.size(); ++s) {
      const std::size_t k = class_of_[s];
      for (std::size_t r = 0; r < num_resources_; ++r) {
        prices.amount[s * num_resources_ + r] = y[amount_row(k, r)];
      }
      prices.cut[s] = y[cut_row(k)];
      prices.half[s] = y[half_row(k)];
    }
    for (int rack = 0; rack < topology_->num_racks(); ++rack) {
      prices.cut[static_cast<std::size_t>(topology_->first_rack() + rack)] = y[rows_ - 1];
    }
    return prices;
  }

 private:
  [[nodiscard]] std::size_t amount_row(std::size_t k, std::size_t r) const { return k * num_resources_ + r; }
  [[nodiscard]] std::size_t cut_row(std::size_t k) const { return classes_.size() * num_resources_ + k; }
  [[nodiscard]] std::size_t half_row(std::size_t k) const { return classes_.size() * (num_resources_ + 1) + k; }

  // Equal capacities and links; where those are too many, about equal ones (by powers of two), and at last all in one.
  void group() {
    for (const double step : {0.0, 1.0, 4.0, 1e9}) {
      std::map<std::vector<double>, std::size_t> known;
      classes_.clear();
      class_of_.clear();
      const auto rounded = [&](double value) {
        return step == 0 || value == 0 || std::isinf(value) ? value : std::floor(std::log2(value) / step);
      };
      for (int s = 0; s < topology_->num_servers(); ++s) {
        const model::Server& server = topology_->cluster().server(model::ServerId(s));
        const Topology::Node& node = topology_->node(s);
        std::vector<double> key;
        for (const double amount : server.capacity) {
          key.push_back(rounded(amount));
        }
        key.push_back(rounded(node.capacity));
        key.push_back(rounded(node.widest));
        const auto [found, is_new] = known.try_emplace(std::move(key), classes_.size());
        if (is_new) {
          classes_.push_back({.largest = std::vector<double>(num_resources_), .total = std::vector<double>(num_resources_)});
        }
        ServerClass& here = classes_[found->second];
        for (std::size_t r = 0; r < num_resources_; ++r) {
          const double amount = server.capacity[model::ResourceId::from_index(r)];
          here.largest[r] = std::max(here.largest[r], amount);
          here.total[r] += amount;
        }
        here.count += 1;
        here.cut += node.capacity;
        here.widest = std::max(here.widest, node.widest);
        here.largest_cut = std::max(here.largest_cut, node.capacity);
        class_of_.push_back(found->second);
      }
      if (classes_.size() <= kMostClasses) {
        return;
      }
    }
  }

  // What the largest rack holds of each resource.
  void size_racks() {
    rack_largest_.assign(num_resources_, 0);
    for (int rack = 0; rack < topology_->num_racks(); ++rack) {
      for (std::size_t r = 0; r < num_resources_; ++r) {
        double sum = 0;
        for (const int server : topology_->servers_of(rack)) {
          sum += topology_->cluster().server(model::ServerId(server)).capacity[model::ResourceId::from_index(r)];
        }
        rack_largest_[r] = std::max(rack_largest_[r], sum);
      }
    }
  }

  [[nodiscard]] int fit(const std::vector<double>& amounts, const model::Job& job, int limit) const {
    double fit = limit;
    for (std::size_t r = 0; r < num_resources_; ++r) {
      if (const double demand = job.demand[model::ResourceId::from_index(r)]; demand > 0) {
        fit = std::min(fit, amounts[r] * (1 + kFitTolerance) / demand);
      }
    }
    return static_cast<int>(fit);
  }

  struct Item {
    std::size_t k = 0;
    double alpha = 0;
    double beta = 0;
    int most = 0;
    bool half = false;
    bool open = false;
  };

  double best_of(std::size_t i, const std::vector<double>& y, std::vector<double>& use) {
    const Candidate& candidate = (*candidates_)[i];
    const auto limit = static_cast<std::size_t>(candidate.limit);
    items_.clear();
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      Item item{.k = k, .most = fit(classes_[k].largest, *candidate.job, candidate.limit)};
      if (item.most == 0) {
        continue;
      }
      for (std::size_t r = 0; r < num_resources_; ++r) {
        item.alpha += y[amount_row(k, r)] * candidate.job->demand[model::ResourceId::from_index(r)];
      }
      item.half = candidate.bandwidth > classes_[k].largest_cut / 2;
      item.open = candidate.bandwidth <= classes_[k].widest * (1 + kFitTolerance);
      item.beta = candidate.bandwidth * y[cut_row(k)] + (item.half ? y[half_row(k)] : 0);
      items_.push_back(item);
    }
    // On several servers: cheapest_[w], and the last server's class and workers.
    cheapest_.assign(limit + 1, kInfinity);
    last_.assign(limit + 1, {0, 0});
    cheapest_[0] = 0;
    for (std::size_t w = 1; w <= limit; ++w) {
      for (std::size_t n = 0; n < items_.size(); ++n) {
        const Item& item = items_[n];
        if (!item.open) {
          continue;
        }
        const auto most = std::min(w, static_cast<std::size_t>(item.most));
        for (std::size_t m = 1; m <= most; ++m) {
          const double cost = cheapest_[w - m] + item.beta + static_cast<double>(m) * item.alpha;
          if (cost < cheapest_[w]) {
            cheapest_[w] = cost;
            last_[w] = {n, m};
          }
        }
      }
    }
    const int in_rack = topology_->num_racks() > 1 ? std::max(1, fit(rack_largest_, *candidate.job, candidate.limit)) : candidate.limit;
    const bool leaves_racks = candidate.bandwidth <= widest_rack_ * (1 + kFitTolerance) && candidate.max_racks != 1;
    double best = 0;
    std::size_t best_w = 0;
    std::size_t best_item = items_.size();  // on one server of this; else on several
    double racks = 0;
    for (std::size_t w = static_cast<std::size_t>(candidate.min); w <= limit; ++w) {
      for (std::size_t n = 0; n < items_.size(); ++n) {
        if (w <= static_cast<std::size_t>(items_[n].most)) {
          const double net = candidate.local[w] - static_cast<double>(w) * items_[n].alpha;
          if (net > best) {
            best = net;
            best_w = w;
            best_item = n;
          }
        }
      }
      double crossed = 0;
      if (static_cast<int>(w) > in_rack) {
        if (!leaves_racks) {
          continue;
        }
        crossed = std::ceil(static_cast<double>(w) / in_rack);
      }
      const double net = candidate.spread[w] - cheapest_[w] - crossed * candidate.bandwidth * y[rows_ - 1];
      if (net > best) {
        best = net;
        best_w = w;
        best_item = items_.size();
        racks = crossed;
      }
    }
    if (candidate.keepable && keep(candidate, y, best, use)) {
      return best;
    }
    if (best_w == 0) {
      return 0;
    }
    const auto add = [&](const Item& item, std::size_t workers) {
      for (std::size_t r = 0; r < num_resources_; ++r) {
        use[amount_row(item.k, r)] += static_cast<double>(workers) * candidate.job->demand[model::ResourceId::from_index(r)];
      }
    };
    if (best_item < items_.size()) {
      add(items_[best_item], best_w);
      return best;
    }
    for (std::size_t w = best_w; w > 0; w -= last_[w].second) {
      const Item& item = items_[last_[w].first];
      add(item, last_[w].second);
      use[cut_row(item.k)] += candidate.bandwidth;
      use[half_row(item.k)] += item.half ? 1 : 0;
    }
    use[rows_ - 1] += racks * candidate.bandwidth;
    return best;
  }

  // Whether keeping the running ring is better than `best`; if so, `best` and `use` are its.
  bool keep(const Candidate& candidate, const std::vector<double>& y, double& best, std::vector<double>& use) const {
    const std::vector<Part> parts = ring_of(*candidate.active->current).parts;
    const auto visit = [&](const auto& row) {
      for (const Part& part : parts) {
        const std::size_t k = class_of_[static_cast<std::size_t>(part.server)];
        for (std::size_t r = 0; r < num_resources_; ++r) {
          row(amount_row(k, r), part.workers * candidate.job->demand[model::ResourceId::from_index(r)]);
        }
        if (parts.size() > 1) {
          row(cut_row(k), candidate.bandwidth);
          row(half_row(k), candidate.bandwidth > classes_[k].largest_cut / 2 ? 1 : 0);
        }
      }
    };
    double cost = 0;
    visit([&](std::size_t row, double amount) { cost += y[row] * amount; });
    if (candidate.keep_value - cost <= best) {
      return false;
    }
    best = candidate.keep_value - cost;
    visit([&](std::size_t row, double amount) { use[row] += amount; });
    return true;
  }

  const Topology* topology_;
  const std::vector<Candidate>* candidates_;
  std::size_t num_resources_ = 0;
  std::size_t rows_ = 0;
  std::vector<ServerClass> classes_;
  std::vector<std::size_t> class_of_;  // [server]
  std::vector<double> right_;
  double rack_cut_ = 0;
  double widest_rack_ = 0;
  std::vector<double> rack_largest_;
  std::vector<Item> items_;
  std::vector<double> cheapest_;
  std::vector<std::pair<std::size_t, std::size_t>> last_;
};

}  // namespace

ClassBound class_bound(const Topology& topology, const std::vector<Candidate>& candidates, double solution,
                       const model::Amounts& pooled_prices, const ClassLimits& limits, Work& work) {
  Classes classes(topology, candidates);
  std::vector<double> y = classes.start(pooled_prices);
  std::vector<double> best_y = y;
  std::vector<double> use;
  ClassBound result{.bound = kInfinity, .prices = {}};
  double step = 1;
  int idle = 0;
  for (std::int64_t k = 0; k < limits.steps; ++k) {
    if (work.columns >= limits.max_columns) {
      result.limited = true;
      break;
    }
    const double bound = classes.evaluate(y, use);
    work.columns += static_cast<std::int64_t>(candidates.size());
    if (bound < result.bound * (1 - 1e-6)) {
      result.bound = bound;
      best_y = y;
      idle = 0;
    } else if (++idle >= kPatience) {
      step /= 2;
      idle = 0;
      y = best_y;
      continue;
    }
    if (result.bound <= limits.enough) {
      break;
    }
    // Rows in units of their right sides: they are GPUs, bytes and counts.
    double length = 0;
    for (std::size_t row = 0; row < classes.num_rows(); ++row) {
      const double right = classes.right(row);
      if (right > 0 && std::isfinite(right)) {
        const double over = use[row] / right - 1;
        length += over > 0 || y[row] > 0 ? over * over : 0;
      }
    }
    const double gap = bound - solution;
    if (!(length > 0) || !(gap > 0)) {
      break;
    }
    for (std::size_t row = 0; row < classes.num_rows(); ++row) {
      const double right = classes.right(row);
      if (right > 0 && std::isfinite(right)) {
        y[row] = std::max(0.0, y[row] + step * gap / length * (use[row] / right - 1) / right);
      }
    }
  }
  result.prices = classes.prices(best_y);
  return result;
}

}  // namespace maypole::sched::gadget
