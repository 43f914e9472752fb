// SPDX-License-Identifier: Apache-2.0

// Closed walks in general graphs against enumeration: every order of every set of servers, every path.

#include "maypole/sched/policies/gadget_walks.h"

#include "maypole/sched/policies/exact_testing.h"
#include "maypole/sched/sched_testing.h"
#include "maypole/sched/schedule_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace maypole::sched::gadget {
namespace {

using model::Cluster;
using model::Job;
using model::LinkId;
using model::NodeId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A ring of servers one way, some further directed links among servers and two switches; some links too narrow for most jobs.
Cluster random_graph(base::Rng& rng) {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"r"};
  const int servers = static_cast<int>(rng.uniform_int(3, 4));
  for (int s = 0; s < servers; ++s) {
    model::Server server;
    server.id = fmt::format("s{}", s);
    server.rack = model::RackId(0);
    server.capacity.assign(1, static_cast<double>(rng.uniform_int(1, 3)));
    parts.servers.push_back(server);
  }
  parts.switches = {{"x", {}}, {"y", {}}};
  const auto join = [&](int from, int to) {
    parts.links.push_back({fmt::format("l{}", parts.links.size()), NodeId(from), NodeId(to), {rng.uniform(2, 12)}});
  };
  for (int s = 0; s < servers; ++s) {
    join(s, (s + 1) % servers);
  }
  for (int k = 0; k < 7; ++k) {
    const int from = static_cast<int>(rng.uniform_int(0, servers + 1));
    const int to = static_cast<int>(rng.uniform_int(0, servers + 1));
    if (from != to) {
      join(from, to);
    }
  }
  return Cluster::make(std::move(parts)).value();
}

std::vector<Job> jobs_on(base::Rng& rng, const Cluster& cluster, int count) {
  std::vector<Job> jobs;
  const auto total = static_cast<std::int64_t>(cluster.total_capacity()[cluster.accelerator()]);
  for (int i = 0; i < count; ++i) {
    jobs.push_back(elastic_job(cluster, fmt::format("j{}", i), 1, static_cast<int>(std::min(total, rng.uniform_int(2, 5)))));
    jobs.back().edge_bandwidth = {rng.uniform(1, 6)};
    jobs.back().weight = rng.uniform(1, 10);
    jobs.back().progress.zeta = rng.uniform(1, 20);
  }
  return jobs;
}

/// The cheapest simple path, by looking at all of them.
double cheapest_path(const Cluster& cluster, const WalkPrices& prices, double bandwidth, NodeId from, NodeId to) {
  std::vector<bool> passed(cluster.num_nodes(), false);
  double best = kInfinity;
  const std::function<void(NodeId, double)> go = [&](NodeId here, double cost) {
    if (here == to) {
      best = std::min(best, cost);
      return;
    }
    passed[here.index()] = true;
    for (const LinkId link : cluster.out_links(here)) {
      const NodeId next = cluster.link(link).to;
      if (!passed[next.index()] && cluster.link(link).bandwidth.bytes_per_second >= bandwidth) {
        go(next, cost + prices.edge(cluster, link, bandwidth));
      }
    }
    passed[here.index()] = false;
  };
  go(from, 0);
  return best;
}

TEST(WalkPricer, FindsTheCheapestRingOfEverySizeThatEnumerationFinds) {
  base::Rng rng(21);
  int rings = 0;
  int exact = 0;
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    const Cluster cluster = random_graph(rng);
    const std::vector<Job> jobs = jobs_on(rng, cluster, 1);
    const SlotProblem problem = problem_of(cluster, jobs);
    const std::vector<Candidate> candidates = make_candidates(problem, {});
    const Topology topology(cluster);
    const Space space(topology, candidates);
    WalkPrices prices = WalkPrices::zero(cluster);
    for (std::vector<double>* of : {&prices.amount, &prices.link, &prices.half}) {
      for (double& price : *of) {
        price = rng.uniform() < 0.3 ? 0 : rng.uniform();
      }
    }
    const double bandwidth = candidates[0].bandwidth;
    const auto servers = static_cast<int>(cluster.num_servers());
    std::vector<double> cheapest(static_cast<std::size_t>(candidates[0].limit) + 1, kInfinity);
    std::vector<int> order;
    // Every order of every set of servers, every number of workers on each.
    const std::function<void(int, double)> extend = [&](int workers, double cost) {
      if (!order.empty()) {
        double closed = cost;
        if (order.size() > 1) {
          closed += cheapest_path(cluster, prices, bandwidth, NodeId(order.back()), NodeId(order.front()));
        }
        double& least = cheapest[static_cast<std::size_t>(workers)];
        least = std::min(least, closed);
      }
      for (int s = 0; s < servers; ++s) {
        if (std::ranges::find(order, s) != order.end()) {
          continue;
        }
        const double way = order.empty() ? 0 : cheapest_path(cluster, prices, bandwidth, NodeId(order.back()), NodeId(s));
        const auto here = static_cast<int>(cluster.server(model::ServerId(s)).capacity[model::ResourceId(0)]);
        for (int n = 1; n <= std::min(here, candidates[0].limit - workers); ++n) {
          order.push_back(s);
          extend(workers + n, cost + way + n * prices.amount[static_cast<std::size_t>(s)]);
          order.pop_back();
        }
      }
    };
    extend(0, 0);
    WalkPricer pricer(cluster);
    pricer.run(candidates[0], space, prices);
    for (std::size_t w = 1; w < cheapest.size(); ++w) {
      const WalkPricer::Found& found = pricer.found()[w];
      EXPECT_LE(pricer.least()[w], cheapest[w] + 1e-9);
      EXPECT_GE(found.cost, cheapest[w] - 1e-9);
      if (found.ring.workers == 0) {
        continue;
      }
      ++rings;
      exact += found.cost <= cheapest[w] + 1e-9 ? 1 : 0;
      // The ring costs what it says, and its paths join its servers.
      double cost = 0;
      int workers = 0;
      for (std::size_t p = 0; p < found.ring.parts.size(); ++p) {
        const Part& part = found.ring.parts[p];
        cost += part.workers * prices.amount[static_cast<std::size_t>(part.server)];
        workers += part.workers;
        if (found.ring.parts.size() > 1) {
          NodeId here(part.server);
          for (const LinkId link : found.ring.paths[p]) {
            EXPECT_EQ(cluster.link(link).from, here);
            here = cluster.link(link).to;
            cost += prices.edge(cluster, link, bandwidth);
          }
          EXPECT_EQ(here, NodeId(found.ring.parts[(p + 1) % found.ring.parts.size()].server));
        }
      }
      EXPECT_EQ(workers, static_cast<int>(w));
      EXPECT_NEAR(cost, found.cost, 1e-9);
    }
  }
  EXPECT_GT(rings, 100);
  EXPECT_GE(exact, 0.95 * rings);
}

TEST(WalkPricer, TheBoundOfAGeneralGraphIsNotBelowTheBestThatEnumerationFindsAndTheAnswerIsNearIt) {
  base::Rng rng(22);
  double total = 0;
  double optimum = 0;
  int graphs = 0;
  while (graphs < 60) {
    const TinyCase tiny = random_tiny_case(rng);
    if (!prices_walks(Topology(tiny.cluster))) {
      continue;
    }
    SCOPED_TRACE(++graphs);
    const SlotProblem problem = tiny.problem();
    const double best = best_by_enumeration(problem);
    base::Rng draws(1);
    const Decision ours = policy_named("gadget")->decide(problem, draws);
    EXPECT_THAT(check_decision(problem, ours), ::testing::IsEmpty());
    EXPECT_GE(*ours.bound, best * (1 - 1e-9));
    total += ours.utility;
    optimum += best;
  }
  EXPECT_GE(total, 0.95 * optimum);
}

/// Servers of a torus of rows x columns, one link each way between neighbours.
Cluster torus(base::Rng& rng, int rows, int columns) {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  parts.racks = {"r"};
  for (int s = 0; s < rows * columns; ++s) {
    model::Server server;
    server.id = fmt::format("s{}", s);
    server.rack = model::RackId(0);
    server.capacity.assign(1, static_cast<double>(rng.uniform_int(1, 4)));
    parts.servers.push_back(server);
  }
  for (int s = 0; s < rows * columns; ++s) {
    const int right = s / columns * columns + (s + 1) % columns;
    const int below = (s + columns) % (rows * columns);
    for (const int next : {right, below}) {
      for (const auto& [from, to] : {std::pair{s, next}, std::pair{next, s}}) {
        parts.links.push_back({fmt::format("l{}", parts.links.size()), NodeId(from), NodeId(to), {rng.uniform(2, 8)}});
      }
    }
  }
  return Cluster::make(std::move(parts)).value();
}

TEST(WalkPricer, RingsOnATorusWithTightLinksAreNearTheirBound) {
  base::Rng rng(23);
  for (int trial = 0; trial < 6; ++trial) {
    SCOPED_TRACE(trial);
    const Cluster cluster = torus(rng, 3, 4);
    const std::vector<Job> jobs = jobs_on(rng, cluster, 8);
    const SlotProblem problem = problem_of(cluster, jobs);
    base::Rng draws(1);
    const Decision ours = policy_named("gadget")->decide(problem, draws);
    EXPECT_THAT(check_decision(problem, ours), ::testing::IsEmpty());
    EXPECT_LE(*ours.gap, 0.05);
  }
}

}  // namespace
}  // namespace maypole::sched::gadget
