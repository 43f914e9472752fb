// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_columns.h"

#include "maypole/lp/solver.h"
#include "maypole/sched/policies/gadget_walks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace maypole::sched::gadget {

namespace {

constexpr double kReduced = 1e-6;  // in the master's units: a column that improves less is not worth its place

class Master {
 public:
  Master(const Topology& topology, const std::vector<Candidate>& candidates, const ColumnLimits& limits, Work& work)
      : topology_(&topology),
        candidates_(&candidates),
        limits_(limits),
        work_(&work),
        empty_(topology, candidates),
        pricer_(topology),
        by_walks_(prices_walks(topology)),
        walks_(topology.cluster()),
        racks_(static_cast<std::size_t>(topology.num_racks())),
        columns_of_(candidates.size()) {
    std::iota(racks_.begin(), racks_.end(), 0);
    for (const Candidate& candidate : candidates) {
      scale_ = std::max(scale_, candidate.best);
    }
    num_resources_ = topology.cluster().num_resources();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      solver_.add_row({.upper = 1});
    }
    first_amount_ = solver_.program().num_rows();
    for (const model::Server& server : topology.cluster().parts().servers) {
      for (const double amount : server.capacity) {
        solver_.add_row({.upper = amount});
      }
    }
    first_cut_ = solver_.program().num_rows();
    if (by_walks_) {
      for (const model::Link& link : topology.cluster().parts().links) {
        solver_.add_row({.upper = link.bandwidth.limited() ? link.bandwidth.bytes_per_second : lp::kInfinity});
        solver_.add_row({.upper = 1});
      }
    }
    for (int node = 0; node < topology.num_nodes() && !by_walks_; ++node) {
      solver_.add_row({.upper = topology.node(node).capacity});
      solver_.add_row({.upper = 1});
    }
  }

  void add(std::size_t job, const Ring& ring) {
    const Candidate& candidate = (*candidates_)[job];
    lp::Column column{.objective = ring.value / scale_};
    column.terms.push_back({lp::RowId::from_index(job), 1});
    for (const Part& part : ring.parts) {
      for (std::size_t r = 0; r < num_resources_; ++r) {
        column.terms.push_back({lp::RowId::from_index(first_amount_ + static_cast<std::size_t>(part.server) * num_resources_ + r),
                                part.workers * candidate.job->demand[model::ResourceId::from_index(r)]});
      }
    }
    if (candidate.bandwidth > 0 && by_walks_) {
      for (const model::LinkId link : links_of(ring)) {
        const base::Bandwidth bandwidth = topology_->cluster().link(link).bandwidth;
        if (bandwidth.limited()) {
          column.terms.push_back({cut_row(link.value()), candidate.bandwidth});
          if (candidate.bandwidth > bandwidth.bytes_per_second / 2) {
            column.terms.push_back({half_row(link.value()), 1});
          }
        }
      }
    } else if (candidate.bandwidth > 0) {
      for (const int node : pricer_.crossed(ring)) {
        const double capacity = topology_->node(node).capacity;
        if (std::isfinite(capacity)) {
          column.terms.push_back({cut_row(node), candidate.bandwidth});
          if (candidate.bandwidth > capacity / 2) {
            column.terms.push_back({half_row(node), 1});
          }
        }
      }
    }
    columns_of_[job].push_back({solver_.add_column(std::move(column)), ring});
  }

  [[nodiscard]] double dual(std::size_t row) const { return scale_ * std::max(0.0, solver_.solution().duals[lp::RowId::from_index(row)]); }

  // What the links' prices come to for a node's part: at least the cheapest way out and the cheapest way in.
  void price_cuts(Prices& prices) const {
    const auto cheapest = [&](const std::vector<model::LinkId>& links) {
      double price = links.empty() ? 0 : std::numeric_limits<double>::infinity();
      for (const model::LinkId link : links) {
        price = std::min(price, dual(cut_row(link.value()).index()));
      }
      return price;
    };
    for (int node = 0; node < topology_->num_nodes(); ++node) {
      prices.cut[static_cast<std::size_t>(node)] = cheapest(topology_->node(node).out) + cheapest(topology_->node(node).in);
    }
  }

  [[nodiscard]] WalkPrices walk_prices_now() const {
    WalkPrices prices = WalkPrices::zero(topology_->cluster());
    for (std::size_t k = 0; k < prices.amount.size(); ++k) {
      prices.amount[k] = dual(first_amount_ + k);
    }
    for (std::size_t e = 0; e < prices.link.size(); ++e) {
      const auto link = static_cast<int>(e);
      if (topology_->cluster().link(model::LinkId(link)).bandwidth.limited()) {
        prices.link[e] = dual(cut_row(link).index());
        prices.half[e] = dual(half_row(link).index());
      }
    }
    return prices;
  }

  [[nodiscard]] Prices prices_now() const {
    Prices prices = Prices::zero(*topology_);
    prices.half.assign(prices.cut.size(), 0);
    for (std::size_t k = 0; k < prices.amount.size(); ++k) {
      prices.amount[k] = dual(first_amount_ + k);
    }
    if (by_walks_) {
      price_cuts(prices);
      return prices;
    }
    for (int node = 0; node < topology_->num_nodes(); ++node) {
      prices.cut[static_cast<std::size_t>(node)] = dual(cut_row(node).index());
      prices.half[static_cast<std::size_t>(node)] = dual(half_row(node).index());
    }
    return prices;
  }

  [[nodiscard]] double job_dual(std::size_t job, bool first) const {
    return first ? 0 : scale_ * std::max(0.0, solver_.solution().duals[lp::RowId::from_index(job)]);
  }

  // Adds every job's best ring among the closed walks; returns the Lagrangian bound, by what no walk undercuts.
  double price_walks(const WalkPrices& prices, bool first, bool& grew) {
    const model::Cluster& cluster = topology_->cluster();
    double bound = 0;
    std::size_t at = 0;
    for (const model::Server& server : cluster.parts().servers) {
      for (const double amount : server.capacity) {
        bound += prices.amount[at++] * amount;
      }
    }
    for (std::size_t e = 0; e < prices.link.size(); ++e) {
      bound += prices.link[e] * cluster.link(model::LinkId::from_index(e)).bandwidth.bytes_per_second + prices.half[e];
    }
    grew = false;
    for (std::size_t i = 0; i < candidates_->size(); ++i) {
      const Candidate& candidate = (*candidates_)[i];
      if (candidate.limit == 0) {
        continue;
      }
      walks_.run(candidate, empty_, prices);
      work_->columns += static_cast<std::int64_t>(candidate.limit) * topology_->num_servers();
      double best = 0;  // of any ring
      double worth = job_dual(i, first) + kReduced * scale_;
      const Ring* chosen = nullptr;
      double chosen_value = 0;
      for (int w = candidate.min; w <= candidate.limit; ++w) {
        const auto size = static_cast<std::size_t>(w);
        best = std::max(best, std::max(candidate.local[size], candidate.spread[size]) - walks_.least()[size]);
        const WalkPricer::Found& found = walks_.found()[size];
        const bool too_many_racks = candidate.max_racks > 0 && num_racks(*topology_, found.ring) > candidate.max_racks;
        if (found.ring.workers == 0 || too_many_racks || !empty_.holds(found.ring, candidate)) {
          continue;
        }
        const double value = candidate.value(w, static_cast<int>(found.ring.parts.size()));
        if (value - found.cost > worth) {
          worth = value - found.cost;
          chosen = &found.ring;
          chosen_value = value;
        }
      }
      const bool known = chosen != nullptr && std::ranges::any_of(columns_of_[i], [&](const auto& column) {
                           return column.second.parts == chosen->parts && column.second.paths == chosen->paths;
                         });
      if (chosen != nullptr && !known) {
        Ring ring = *chosen;
        ring.value = chosen_value;
        add(i, ring);
        grew = true;
      }
      if (candidate.keepable) {
        double cost = 0;
        const Ring ring = kept(candidate);
        for (const Part& part : ring.parts) {
          for (std::size_t r = 0; r < num_resources_; ++r) {
            cost += part.workers * prices.amount[static_cast<std::size_t>(part.server) * num_resources_ + r] *
                    candidate.job->demand[model::ResourceId::from_index(r)];
          }
        }
        for (const model::LinkId link : links_of(ring)) {
          cost += candidate.bandwidth > 0 ? prices.edge(cluster, link, candidate.bandwidth) : 0;
        }
        best = std::max(best, candidate.keep_value - cost);
      }
      bound += best;
    }
    return bound;
  }

  [[nodiscard]] static std::vector<model::LinkId> links_of(const Ring& ring) {
    std::vector<model::LinkId> links;
    for (const std::vector<model::LinkId>& path : ring.paths) {
      links.insert(links.end(), path.begin(), path.end());
    }
    return links;
  }

  // Adds every job's best column after prices, where it improves on the job's own row; returns the Lagrangian bound.
  double price(const Prices& prices, bool first, bool& grew) {
    double bound = 0;
    std::size_t at = 0;
    for (const model::Server& server : topology_->cluster().parts().servers) {
      for (const double amount : server.capacity) {
        bound += prices.amount[at++] * amount;
      }
    }
    for (std::size_t node = 0; node < prices.cut.size(); ++node) {
      bound += prices.cut[node] > 0 ? prices.cut[node] * topology_->node(static_cast<int>(node)).capacity : 0;
      bound += prices.half.empty() ? 0 : prices.half[node];
    }
    grew = false;
    for (std::size_t i = 0; i < candidates_->size(); ++i) {
      const Candidate& candidate = (*candidates_)[i];
      if (candidate.limit == 0) {
        continue;
      }
      const double dual = first ? 0 : scale_ * solver_.solution().duals[lp::RowId::from_index(i)];
      double best = 0;
      const Pricer::Choice* chosen = nullptr;
      pricer_.run({.candidate = &candidate,
                   .space = &empty_,
                   .prices = &prices,
                   .racks = racks_,
                   .cross = candidate.max_racks != 1,
                   .preferences = false});
      work_->columns += static_cast<std::int64_t>(pricer_.choices().size());
      for (const Pricer::Choice& choice : pricer_.choices()) {
        if (choice.value - choice.cost > best) {
          best = choice.value - choice.cost;
          chosen = &choice;
        }
      }
      if (best > std::max(0.0, dual) + kReduced * scale_) {
        Ring ring;
        ring.parts = pricer_.parts(*chosen);
        ring.workers = chosen->workers;
        ring.value = chosen->value;
        const bool known = std::ranges::any_of(columns_of_[i], [&](const auto& column) { return column.second.parts == ring.parts; });
        if (!known) {  // the solver's duals are exact to its tolerance only
          add(i, ring);
          grew = true;
        }
      }
      if (candidate.keepable) {  // its column is there from the start
        best = std::max(best, candidate.keep_value - pricer_.cost(kept(candidate), candidate, prices));
      }
      bound += best;
    }
    return bound;
  }

  [[nodiscard]] static Ring kept(const Candidate& candidate) {
    Ring ring = ring_of(*candidate.active->current);
    ring.value = candidate.keep_value;
    ring.kept = true;
    return ring;
  }

  ColumnBound run(const std::vector<Ring>& start, const model::Amounts& pooled_prices) {
    for (std::size_t i = 0; i < candidates_->size(); ++i) {
      if ((*candidates_)[i].keepable) {
        add(i, kept((*candidates_)[i]));
      }
      if (!start[i].parts.empty() && !start[i].kept) {
        add(i, start[i]);
      }
    }
    ColumnBound result;
    result.prices = uniform_prices(*topology_, pooled_prices);
    bool grew = true;
    if (by_walks_) {
      WalkPrices prices = WalkPrices::zero(topology_->cluster());
      prices.amount = result.prices.amount;
      result.bound = price_walks(prices, /*first=*/true, grew);
    } else {
      result.bound = price(result.prices, /*first=*/true, grew);
    }
    while (grew) {
      const std::int64_t left = limits_.max_pivots - work_->pivots;
      if (left <= 0 || work_->columns >= limits_.max_columns) {
        result.limited = true;
        break;
      }
      const lp::SolveStatus status = solver_.solve(left);
      work_->pivots += solver_.solution().pivots;
      const Prices prices = prices_now();
      const double bound = by_walks_ ? price_walks(walk_prices_now(), /*first=*/false, grew) : price(prices, /*first=*/false, grew);
      if (bound < result.bound) {
        result.bound = bound;
        result.prices = prices;
      }
      if (status != lp::SolveStatus::kOptimal) {
        result.limited = true;
        break;
      }
      result.master = scale_ * solver_.solution().objective;
      if (result.bound <= result.master * (1 + limits_.gap) || result.bound <= limits_.enough) {
        break;
      }
    }
    result.chosen.resize(candidates_->size());
    const auto& primal = solver_.solution().primal;
    for (std::size_t i = 0; i < candidates_->size(); ++i) {
      for (const auto& [column, ring] : columns_of_[i]) {
        if (primal.contains(column) && primal[column] > 1e-6) {
          result.chosen[i].push_back({ring, primal[column]});
        }
      }
    }
    return result;
  }

 private:
  [[nodiscard]] lp::RowId cut_row(int node) const { return lp::RowId::from_index(first_cut_ + 2 * static_cast<std::size_t>(node)); }
  [[nodiscard]] lp::RowId half_row(int node) const { return lp::RowId::from_index(first_cut_ + 2 * static_cast<std::size_t>(node) + 1); }

  const Topology* topology_;
  const std::vector<Candidate>* candidates_;
  ColumnLimits limits_;
  Work* work_;
  Space empty_;
  Pricer pricer_;
  bool by_walks_;
  WalkPricer walks_;
  std::vector<int> racks_;
  double scale_ = std::numeric_limits<double>::min();  // largest value of a column: the solver's tolerances are absolute
  std::size_t num_resources_ = 0;
  std::size_t first_amount_ = 0;
  std::size_t first_cut_ = 0;
  lp::Solver solver_;
  std::vector<std::vector<std::pair<lp::ColumnId, Ring>>> columns_of_;  // [job]
};

}  // namespace

ColumnBound column_bound(const Topology& topology, const std::vector<Candidate>& candidates, const std::vector<Ring>& start,
                         const model::Amounts& pooled_prices, const ColumnLimits& limits, Work& work) {
  return Master(topology, candidates, limits, work).run(start, pooled_prices);
}

}  // namespace maypole::sched::gadget
