// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper_full_lp.h"

#include "maypole/base/check.h"
#include "maypole/lp/solver.h"

#include <algorithm>
#include <limits>

namespace maypole::sched {

namespace {

using lp::ColumnId;
using lp::RowId;
using model::LinkId;
using model::NodeId;
using model::ServerId;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr double kNoFlow = 1e-10;

// Rows (16)-(19): loads within g_s^{u,r} and e_s^{u,v}.
struct CapacityRows {
  std::vector<std::vector<RowId>> servers;  // [server][resource]
  std::vector<RowId> links;                 // [link]; invalid: never binds

  CapacityRows(const model::Cluster& cluster, lp::Solver& solver) {
    for (const model::Server& server : cluster.parts().servers) {
      servers.emplace_back();
      for (const double capacity : server.capacity) {
        servers.back().push_back(solver.add_row({.upper = capacity}));
      }
    }
    for (std::size_t l = 0; l < cluster.num_links(); ++l) {
      const double capacity = link_capacity(cluster, LinkId::from_index(l));
      links.push_back(capacity < lp::kInfinity ? solver.add_row({.upper = capacity}) : RowId());
    }
  }
  void add_node(const PaperJob& job, ServerId server, std::vector<lp::Term>& terms) const {
    for (std::size_t r = 0; r < job.demand.size(); ++r) {
      terms.push_back({servers[server.index()][r], job.demand[r]});
    }
  }
  void add_edge(const PaperJob& job, LinkId link, std::vector<lp::Term>& terms) const {
    if (links[link.index()].valid()) {
      terms.push_back({links[link.index()], job.bandwidth});
    }
  }
};

// The layered graph of one job and one host w of ring node 0.
struct Copy {
  ServerId host;
  ColumnId start;                            // y_i^w
  std::vector<std::vector<ColumnId>> move;   // f: [layer][link]
  std::vector<std::vector<ColumnId>> place;  // g: [layer 1..kappa-1, at 0..kappa-2][server]; invalid where it is no host
};

class Follower {
 public:
  Follower(const model::Cluster& cluster, const Copy& copy, base::IdVector<ColumnId, double>& flow, model::Embedding shape)
      : cluster_(cluster), copy_(copy), flow_(flow), shape_(std::move(shape)) {}

  // Takes the next mapping out of the flow; its weight is 0 where there is none.
  WeightedMapping next() {
    WeightedMapping mapping{flow_[copy_.start], shape_};
    if (mapping.weight <= kNoFlow) {
      return {};
    }
    std::vector<ColumnId> used = {copy_.start};
    mapping.embedding.ring = {copy_.host};
    NodeId here = model::Cluster::node(copy_.host);
    const std::size_t layers = copy_.move.size();
    for (std::size_t layer = 0; layer < layers; ++layer) {
      std::vector<LinkId> path;
      here = walk_layer(layer, here, path, used);
      if (layers > 1) {
        mapping.embedding.edges.push_back(path);
      }
      if (layer + 1 < layers) {
        const ServerId server = cluster_.server_of(here);
        used.push_back(copy_.place[layer][server.index()]);
        mapping.embedding.ring.push_back(server);
      }
    }
    for (const ColumnId id : used) {
      mapping.weight = std::min(mapping.weight, flow_[id]);
    }
    for (const ColumnId id : used) {
      flow_[id] -= mapping.weight;
    }
    return mapping;
  }

 private:
  // Follows the larger flow until the walk leaves the layer; cancels the cycles of flow that it runs into.
  NodeId walk_layer(std::size_t layer, NodeId here, std::vector<LinkId>& path, std::vector<ColumnId>& used) {
    while (true) {
      const double leaves = leaving(layer, here);
      LinkId best;
      double best_flow = 0;
      for (const LinkId link : cluster_.out_links(here)) {
        if (const double flow = flow_[copy_.move[layer][link.index()]]; flow > best_flow) {
          best_flow = flow;
          best = link;
        }
      }
      if (leaves >= best_flow || best_flow <= kNoFlow) {
        MAYPOLE_CHECK(leaves > 0);
        for (const LinkId link : path) {
          used.push_back(copy_.move[layer][link.index()]);
        }
        return here;
      }
      path.push_back(best);
      here = cluster_.link(best).to;
      cut_cycle(layer, here, path);
    }
  }

  // Flow out of the layer at a node: the placement of the next ring node, or the end at the host.
  [[nodiscard]] double leaving(std::size_t layer, NodeId node) const {
    if (layer + 1 == copy_.move.size()) {
      return node == model::Cluster::node(copy_.host) ? flow_[copy_.start] : 0;
    }
    const ServerId server = cluster_.server_of(node);
    const ColumnId id = server.valid() ? copy_.place[layer][server.index()] : ColumnId();
    return id.valid() ? flow_[id] : 0;
  }

  // Where the path has come back to `here`: the cycle's flow goes nowhere, so its smallest part is taken out.
  void cut_cycle(std::size_t layer, NodeId here, std::vector<LinkId>& path) {
    const auto begin = std::ranges::find_if(path, [&](LinkId link) { return cluster_.link(link).from == here; });
    if (begin == path.end()) {
      return;
    }
    double least = std::numeric_limits<double>::infinity();
    for (auto link = begin; link != path.end(); ++link) {
      least = std::min(least, flow_[copy_.move[layer][link->index()]]);
    }
    for (auto link = begin; link != path.end(); ++link) {
      flow_[copy_.move[layer][link->index()]] -= least;
    }
    path.erase(begin, path.end());
  }

  const model::Cluster& cluster_;
  const Copy& copy_;
  base::IdVector<ColumnId, double>& flow_;
  model::Embedding shape_;
};

// Adds the copy's columns and its rows of flow preservation.
Copy add_copy(const PaperSlot& slot, std::size_t i, int size, ServerId host, RowId starts, const CapacityRows& capacity,
              lp::Solver& solver) {
  const model::Cluster& cluster = slot.cluster();
  const PaperJob& job = slot.jobs[i];
  const auto layers = static_cast<std::size_t>(size);
  std::vector<std::vector<RowId>> keeps(layers);  // [layer][node]: out - in - placed there + placed on = 0
  for (std::vector<RowId>& layer : keeps) {
    for (std::size_t n = 0; n < cluster.num_nodes(); ++n) {
      layer.push_back(solver.add_row({.lower = 0, .upper = 0}));
    }
  }
  Copy copy;
  copy.host = host;
  // y_i^w = g_0 = g_kappa: it enters layer 0 and leaves layer kappa-1 at w.
  std::vector<lp::Term> terms = {{starts, 1}, {keeps[0][host.index()], -1}, {keeps[layers - 1][host.index()], 1}};
  capacity.add_node(job, host, terms);
  copy.start = solver.add_column({.terms = std::move(terms)});
  for (std::size_t layer = 0; layer < layers; ++layer) {
    copy.move.emplace_back();
    for (std::size_t l = 0; l < cluster.num_links(); ++l) {
      const auto link = LinkId::from_index(l);
      terms = {{keeps[layer][cluster.link(link).from.index()], 1}, {keeps[layer][cluster.link(link).to.index()], -1}};
      capacity.add_edge(job, link, terms);
      copy.move.back().push_back(solver.add_column({.terms = std::move(terms)}));
    }
    if (layer + 1 < layers) {
      copy.place.emplace_back();
      for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
        terms = {{keeps[layer][s], 1}, {keeps[layer + 1][s], -1}};
        capacity.add_node(job, ServerId::from_index(s), terms);
        copy.place.back().push_back(job.host[s] ? solver.add_column({.terms = std::move(terms)}) : ColumnId());
      }
    }
  }
  return copy;
}

}  // namespace

double full_relaxation(const PaperSlot& slot) {
  const model::Cluster& cluster = slot.cluster();
  lp::Solver solver;
  const CapacityRows capacity(cluster, solver);
  for (const PaperJob& job : slot.jobs) {
    const RowId embedded = solver.add_row({.upper = 1});  // (13), with rho_i <= 1
    for (int k = job.min_size; k <= job.max_size; ++k) {
      const auto size = static_cast<std::size_t>(k);
      std::vector<RowId> placed;              // (14), [ring node]
      std::vector<std::vector<RowId>> flows;  // (15), [ring edge][node]
      for (std::size_t a = 0; a < size; ++a) {
        placed.push_back(solver.add_row({.lower = 0, .upper = 0}));
        flows.emplace_back();
        for (std::size_t n = 0; n < cluster.num_nodes(); ++n) {
          flows.back().push_back(solver.add_row({.lower = 0, .upper = 0}));
        }
      }
      lp::Column chi{.objective = job.gain[size] * slot.scale(), .terms = {{embedded, 1}}};
      for (const RowId row : placed) {
        chi.terms.push_back({row, -1});
      }
      solver.add_column(std::move(chi));
      for (std::size_t a = 0; a < size; ++a) {
        const std::size_t before = (a + size - 1) % size;  // the edge that ends at a
        for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
          lp::Column place{.terms = {{placed[a], 1}, {flows[a][s], -1}, {flows[before][s], 1}}};
          capacity.add_node(job, ServerId::from_index(s), place.terms);
          solver.add_column(std::move(place));
        }
        for (std::size_t l = 0; l < cluster.num_links() && size > 1; ++l) {
          const auto link = LinkId::from_index(l);
          lp::Column theta{.terms = {{flows[a][cluster.link(link).from.index()], 1}, {flows[a][cluster.link(link).to.index()], -1}}};
          capacity.add_edge(job, link, theta.terms);
          solver.add_column(std::move(theta));
        }
      }
    }
  }
  MAYPOLE_CHECK(solver.solve(kNoLimit) == lp::SolveStatus::kOptimal);
  return solver.solution().objective / slot.scale();
}

FullAugmented full_augmented_lp(const PaperSlot& slot, const std::vector<int>& sizes) {
  const model::Cluster& cluster = slot.cluster();
  lp::Solver solver;
  const CapacityRows capacity(cluster, solver);
  std::vector<std::vector<Copy>> copies(slot.jobs.size());
  std::vector<ColumnId> embedded(slot.jobs.size());
  for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
    if (sizes[i] == 0) {
      continue;
    }
    const RowId starts = solver.add_row({.lower = 0, .upper = 0});  // sum_w y_i^w = x_i
    embedded[i] = solver.add_column(
        {.objective = slot.jobs[i].gain[static_cast<std::size_t>(sizes[i])] * slot.scale(), .upper = 1, .terms = {{starts, -1}}});
    for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
      if (slot.jobs[i].host[s]) {
        copies[i].push_back(add_copy(slot, i, sizes[i], ServerId::from_index(s), starts, capacity, solver));
      }
    }
  }
  MAYPOLE_CHECK(solver.solve(kNoLimit) == lp::SolveStatus::kOptimal);
  FullAugmented full;
  full.value = solver.solution().objective / slot.scale();
  full.mappings.resize(slot.jobs.size());
  full.embedded.resize(slot.jobs.size(), 0);
  base::IdVector<ColumnId, double> flow = solver.solution().primal;
  for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
    if (sizes[i] == 0) {
      continue;
    }
    full.embedded[i] = flow[embedded[i]];
    model::Embedding shape;
    shape.bandwidth = slot.jobs[i].active->job->edge_bandwidth;
    for (const Copy& copy : copies[i]) {
      Follower follower(cluster, copy, flow, shape);
      for (WeightedMapping mapping = follower.next(); mapping.weight > 0; mapping = follower.next()) {
        full.mappings[i].push_back(std::move(mapping));
      }
    }
  }
  return full;
}

}  // namespace maypole::sched
