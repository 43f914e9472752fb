// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_pricer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace maypole::sched::gadget {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Preferences, in shares of the job's best value: each is far below the next, all far below what a worker is worth.
constexpr double kPerRack = 1e-6;
constexpr double kPerServer = 1e-8;
constexpr double kPerMove = 1e-10;        // a worker on a server where the job has none now
constexpr double kPerLeftWorker = 1e-12;  // room left on a server that is used
constexpr double kPerLeftInNode = 1e-14;  // room left in the rack

}  // namespace

Prices Prices::zero(const Topology& topology) {
  Prices prices;
  prices.amount.assign(topology.cluster().num_servers() * topology.cluster().num_resources(), 0);
  prices.cut.assign(static_cast<std::size_t>(topology.num_nodes()), 0);
  return prices;
}

Prices uniform_prices(const Topology& topology, const model::Amounts& per_resource) {
  Prices prices = Prices::zero(topology);
  for (std::size_t k = 0; k < prices.amount.size(); ++k) {
    prices.amount[k] = per_resource[model::ResourceId::from_index(k % per_resource.size())];
  }
  return prices;
}

double Pricer::crossing(const Topology& topology, const Prices& prices, int node, double bandwidth) {
  const auto at = static_cast<std::size_t>(node);
  double price = prices.cut[at] * bandwidth;
  if (!prices.half.empty() && bandwidth > topology.node(node).capacity / 2) {
    price += prices.half[at];
  }
  return price;
}

double Pricer::alpha(int server, const model::Job& job, const Prices& prices) const {
  double sum = 0;
  const std::size_t first = static_cast<std::size_t>(server) * job.demand.size();
  for (std::size_t r = 0; r < job.demand.size(); ++r) {
    sum += prices.amount[first + r] * job.demand[model::ResourceId::from_index(r)];
  }
  return sum;
}

double Pricer::cost(const Ring& ring, const Candidate& candidate, const Prices& prices) const {
  double sum = 0;
  for (const Part& part : ring.parts) {
    sum += part.workers * alpha(part.server, *candidate.job, prices);
  }
  for (const int node : crossed(ring)) {
    sum += crossing(*topology_, prices, node, candidate.bandwidth);
  }
  return sum;
}

std::vector<int> Pricer::crossed(const Ring& ring) const {
  std::vector<int> crossed;
  if (ring.parts.size() < 2) {
    return crossed;
  }
  std::vector<int> nodes;
  for (const Part& part : ring.parts) {
    nodes.push_back(part.server);
  }
  const auto once = [&] {
    std::ranges::sort(nodes);
    nodes.erase(std::ranges::unique(nodes).begin(), nodes.end());
  };
  // One level up at a time, the deepest first, until the ways meet.
  for (once(); nodes.size() > 1; once()) {
    const int deepest = *std::ranges::max_element(nodes, {}, [&](int node) { return topology_->depth(node); });
    const int depth = topology_->depth(deepest);
    for (int& node : nodes) {
      if (topology_->depth(node) == depth) {
        crossed.push_back(node);
        node = topology_->node(node).parent;
      }
    }
  }
  return crossed;
}

void Pricer::run(const Query& query) {
  const Candidate& candidate = *query.candidate;
  width_ = static_cast<std::size_t>(candidate.limit) + 1;
  entries_.clear();
  cost_.clear();
  pick_.clear();
  choices_.clear();
  single_.assign(width_, {.cost = kInfinity});
  several_.assign(width_, {.cost = kInfinity});
  if (entry_of_.empty()) {
    entry_of_.assign(static_cast<std::size_t>(topology_->num_nodes()), -1);
    held_.assign(static_cast<std::size_t>(topology_->num_servers()), 0);
  }
  // A power of two, so that equal sums of preferences stay equal to the last bit.
  scale_ = query.preferences && candidate.best > 0 ? std::ldexp(1.0, std::ilogb(candidate.best)) : 0;
  const bool moves = query.preferences && candidate.active->running();
  if (moves) {
    for (const model::ServerId server : candidate.active->current->ring) {
      ++held_[server.index()];
    }
  }
  for (const int rack : query.racks) {
    std::vector<int> below;
    for (const int server : topology_->servers_of(rack)) {
      const std::size_t before = entries_.size();
      add_server(server, query);
      if (entries_.size() > before) {
        below.push_back(static_cast<int>(before));
      }
    }
    combine(topology_->first_rack() + rack, query, below);
  }
  if (query.cross && query.racks.size() > 1) {
    for (const int node : topology_->upper()) {
      std::vector<int> below;
      for (const int child : topology_->node(node).children) {
        if (const int entry = entry_of_[static_cast<std::size_t>(child)]; entry >= 0) {
          below.push_back(entry);
        }
      }
      combine(node, query, below);
    }
  }
  for (const Entry& entry : entries_) {
    entry_of_[static_cast<std::size_t>(entry.node)] = -1;
  }
  if (moves) {
    for (const model::ServerId server : candidate.active->current->ring) {
      held_[server.index()] = 0;
    }
  }
  for (int w = candidate.min; w <= candidate.limit; ++w) {
    const auto at = static_cast<std::size_t>(w);
    Choice& single = single_[at];
    Choice& several = several_[at];
    single.value = candidate.local[at];
    several.value = candidate.spread[at];
    single.workers = several.workers = w;
    const bool one = single.node >= 0;
    if (one && (several.node < 0 || single.value - single.cost >= several.value - several.cost)) {
      choices_.push_back(single);
    } else if (several.node >= 0) {
      choices_.push_back(several);
    }
  }
}

void Pricer::add_server(int server, const Query& query) {
  const Candidate& candidate = *query.candidate;
  const int fit = query.space->fit(server, *candidate.job, candidate.limit + 64);
  if (fit == 0) {
    return;
  }
  const double unit = query.scale * alpha(server, *candidate.job, *query.prices);
  const int most = std::min(fit, candidate.limit);
  const int held = held_[static_cast<std::size_t>(server)];
  const std::size_t first = cost_.size();
  cost_.push_back(0);
  for (int n = 1; n <= most; ++n) {
    const double cost = n * unit + scale_ * (kPerMove * std::max(0, n - held) + kPerLeftWorker * (fit - n));
    cost_.push_back(cost);
    if (Choice& best = single_[static_cast<std::size_t>(n)]; cost < best.cost) {
      best.cost = cost;
      best.node = server;
    }
  }
  entries_.push_back({server, first, pick_.size(), most, {}});
  pick_.resize(pick_.size() + width_);
}

void Pricer::combine(int node, const Query& query, std::vector<int>& below) {
  const double bandwidth = query.candidate->bandwidth;
  const auto limit = static_cast<int>(width_) - 1;
  table_.assign(width_, kInfinity);
  table_[0] = 0;
  int total = 0;
  Entry here{node, 0, 0, 0, {}};
  for (const int index : below) {
    const Entry& child = entries_[static_cast<std::size_t>(index)];
    if (bandwidth > 0 && !query.space->open(child.node, bandwidth)) {
      continue;
    }
    const bool is_server = child.node < topology_->num_servers();
    const double leave =
        query.scale * crossing(*topology_, *query.prices, child.node, bandwidth) + scale_ * (is_server ? kPerServer : kPerRack);
    const double* cost = &cost_[child.first];
    int* pick = &pick_[child.pick];
    const int reach = std::min(limit, total + child.most);
    for (int w = reach; w >= 1; --w) {
      double best = table_[static_cast<std::size_t>(w)];
      int best_n = 0;
      for (int n = std::max(1, w - total); n <= std::min(child.most, w); ++n) {
        const double sum = table_[static_cast<std::size_t>(w - n)] + cost[n] + leave;
        if (sum < best) {
          best = sum;
          best_n = n;
        }
      }
      table_[static_cast<std::size_t>(w)] = best;
      pick[w] = best_n;
    }
    for (int w = reach + 1; w <= limit; ++w) {
      pick[w] = 0;
    }
    pick[0] = 0;
    total += child.most;
    here.members.push_back(index);
  }
  here.most = std::min(total, limit);
  if (here.most == 0) {
    return;
  }
  for (int w = 2; w <= here.most; ++w) {
    const double cost = table_[static_cast<std::size_t>(w)] + scale_ * kPerLeftInNode * (total - w);
    if (Choice& best = several_[static_cast<std::size_t>(w)]; cost < best.cost) {
      best.cost = cost;
      best.node = node;
    }
  }
  here.first = cost_.size();
  here.pick = pick_.size();
  cost_.insert(cost_.end(), table_.begin(), table_.begin() + here.most + 1);
  pick_.resize(pick_.size() + width_);
  entry_of_[static_cast<std::size_t>(node)] = static_cast<int>(entries_.size());
  entries_.push_back(std::move(here));
}

std::vector<Part> Pricer::parts(const Choice& choice) const {
  if (choice.node < topology_->num_servers()) {
    return {{choice.node, choice.workers}};
  }
  std::vector<Part> parts;
  std::vector<std::pair<const Entry*, int>> open;
  for (const Entry& entry : entries_) {
    if (entry.node == choice.node) {
      open.emplace_back(&entry, choice.workers);
    }
  }
  // Depth first, the last child first; reversed at the end.
  while (!open.empty()) {
    const auto [entry, workers] = open.back();
    open.pop_back();
    if (entry->node < topology_->num_servers()) {
      parts.push_back({entry->node, workers});
      continue;
    }
    int left = workers;
    std::vector<std::pair<const Entry*, int>> used;
    for (auto member = entry->members.rbegin(); member != entry->members.rend() && left > 0; ++member) {
      const Entry& child = entries_[static_cast<std::size_t>(*member)];
      if (const int n = pick_[child.pick + static_cast<std::size_t>(left)]; n > 0) {
        used.emplace_back(&child, n);
        left -= n;
      }
    }
    open.insert(open.end(), used.rbegin(), used.rend());
  }
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace maypole::sched::gadget
