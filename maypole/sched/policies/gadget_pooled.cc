// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_pooled.h"

#include "maypole/lp/solver.h"

#include <algorithm>
#include <limits>

namespace maypole::sched::gadget {

namespace {

struct Segment {
  double value = 0;
  int workers = 0;
  const model::Amounts* demand = nullptr;
};

// The Lagrangian at `prices`: an upper bound whatever they are.
double lagrangian(const model::Cluster& cluster, const std::vector<Candidate>& candidates, const model::Amounts& prices) {
  double value = 0;
  for (std::size_t i = 0; i < prices.size(); ++i) {
    const auto r = model::ResourceId::from_index(i);
    value += prices[r] * cluster.total_capacity()[r];
  }
  for (const Candidate& candidate : candidates) {
    double unit = 0;
    for (std::size_t i = 0; i < prices.size(); ++i) {
      const auto r = model::ResourceId::from_index(i);
      unit += prices[r] * candidate.job->demand[r];
    }
    double best = 0;
    for (const Vertex& vertex : candidate.hull) {
      best = std::max(best, vertex.value - unit * vertex.workers);
    }
    value += best;
  }
  return value;
}

// The price of resource r if it alone were scarce. `segments` in any order.
double price_alone(std::vector<Segment>& segments, model::ResourceId r, double capacity) {
  const auto need = [&](const Segment& segment) { return segment.workers * (*segment.demand)[r]; };
  // Segments that need none of it come first, whatever they are worth.
  std::ranges::stable_sort(segments, [&](const Segment& a, const Segment& b) { return a.value * need(b) > b.value * need(a); });
  double used = 0;
  for (const Segment& segment : segments) {
    used += need(segment);
    if (used > capacity * (1 + 1e-12)) {
      return segment.value / need(segment);
    }
  }
  return 0;
}

}  // namespace

PooledBound pooled_bound(const model::Cluster& cluster, const std::vector<Candidate>& candidates, std::int64_t max_pivots, Work& work) {
  const std::size_t num_resources = cluster.num_resources();
  std::vector<Segment> segments;
  for (const Candidate& candidate : candidates) {
    for (std::size_t v = 1; v < candidate.hull.size(); ++v) {
      segments.push_back({candidate.hull[v].value - candidate.hull[v - 1].value, candidate.hull[v].workers - candidate.hull[v - 1].workers,
                          &candidate.job->demand});
    }
  }
  PooledBound best{.value = 0, .prices = model::Amounts(num_resources, 0)};
  best.value = lagrangian(cluster, candidates, best.prices);
  std::vector<bool> binds(num_resources);
  for (std::size_t i = 0; i < num_resources; ++i) {
    const auto r = model::ResourceId::from_index(i);
    double used = 0;
    for (const Segment& segment : segments) {
      used += segment.workers * (*segment.demand)[r];
    }
    binds[i] = used > cluster.total_capacity()[r] * (1 + 1e-12);
    if (binds[i]) {
      PooledBound alone{.value = 0, .prices = model::Amounts(num_resources, 0)};
      alone.prices[r] = price_alone(segments, r, cluster.total_capacity()[r]);
      alone.value = lagrangian(cluster, candidates, alone.prices);
      if (alone.value < best.value) {
        best = std::move(alone);
      }
    }
  }
  if (std::ranges::count(binds, true) <= 1 || max_pivots <= 0) {
    return best;
  }
  double scale = std::numeric_limits<double>::min();  // the solver's tolerances are absolute
  for (const Segment& segment : segments) {
    scale = std::max(scale, segment.value);
  }
  lp::Solver solver;
  for (std::size_t i = 0; i < num_resources; ++i) {
    solver.add_row({.upper = cluster.total_capacity()[model::ResourceId::from_index(i)]});
  }
  for (const Segment& segment : segments) {
    lp::Column column{.objective = segment.value / scale, .upper = 1};
    for (std::size_t i = 0; i < num_resources; ++i) {
      column.terms.push_back({lp::RowId::from_index(i), segment.workers * (*segment.demand)[model::ResourceId::from_index(i)]});
    }
    solver.add_column(std::move(column));
  }
  solver.solve(max_pivots);
  work.pivots += solver.total_pivots();
  PooledBound solved{.value = 0, .prices = model::Amounts(num_resources, 0)};
  for (std::size_t i = 0; i < num_resources; ++i) {
    solved.prices[model::ResourceId::from_index(i)] = scale * std::max(0.0, solver.solution().duals[lp::RowId::from_index(i)]);
  }
  solved.value = lagrangian(cluster, candidates, solved.prices);
  return solved.value < best.value ? solved : best;
}

}  // namespace maypole::sched::gadget
