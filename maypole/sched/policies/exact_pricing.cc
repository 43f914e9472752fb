// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact_pricing.h"

#include <algorithm>

namespace maypole::sched {

namespace {

// Calls visit(chosen) for every choice of `size` of 0..count-1.
template <typename Visit>
void for_each_choice(int count, int size, const Visit& visit) {
  std::vector<int> chosen(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    chosen[static_cast<std::size_t>(i)] = i;
  }
  while (true) {
    visit(chosen);
    int i = size - 1;
    while (i >= 0 && chosen[static_cast<std::size_t>(i)] == count - size + i) {
      --i;
    }
    if (i < 0) {
      return;
    }
    ++chosen[static_cast<std::size_t>(i)];
    for (int j = i + 1; j < size; ++j) {
      chosen[static_cast<std::size_t>(j)] = chosen[static_cast<std::size_t>(j - 1)] + 1;
    }
  }
}

}  // namespace

std::int16_t feature_of(const ExactColumn& column, std::size_t feature) {
  if (feature < column.counts.size()) {
    return column.counts[feature];
  }
  feature -= column.counts.size();
  return feature < column.crossings.size() ? column.crossings[feature] : column.variant;
}

bool ExactBox::allows(const ExactColumn& column) const {
  for (std::size_t f = 0; f < low.size(); ++f) {
    const std::int16_t value = feature_of(column, f);
    if (value < low[f] || value > high[f]) {
      return false;
    }
  }
  return true;
}

bool ExactBox::allows_nothing() const {
  return std::ranges::all_of(low, [](std::int16_t value) { return value <= 0; });
}

TreePricer::TreePricer(const ExactProblem& problem) : problem_(problem) {
  tables_.resize(problem.tree.size());
  choices_.resize(problem.tree.size());
  for (std::size_t v = 0; v < problem.tree.size(); ++v) {
    choices_[v].resize(problem.tree[v].children.size() + (problem.tree[v].server >= 0 ? 1 : 0));
  }
  forced_.resize(problem.tree.size());
  reach_.resize(problem.tree.size());
}

std::vector<PricedColumn> TreePricer::price(int job, const ExactPrices& prices, const ExactBox& box, double threshold, std::size_t limit) {
  const ExactJob& entry = problem_.jobs[static_cast<std::size_t>(job)];
  std::vector<PricedColumn> best_of;  // [workers]
  if (entry.max_workers < entry.min_workers || box.low.back() > 0) {
    return best_of;
  }
  best_of.resize(static_cast<std::size_t>(entry.max_workers) + 1, {.value = threshold, .column = {}});
  std::vector<model::RackId> racks;
  for (const model::Server& server : problem_.cluster().parts().servers) {
    if (std::ranges::find(racks, server.rack) == racks.end()) {
      racks.push_back(server.rack);
    }
  }
  const auto num_racks = static_cast<int>(racks.size());
  if (entry.max_racks <= 0 || entry.max_racks >= num_racks) {
    price_within(job, prices, box, best_of);
  } else {
    for_each_choice(num_racks, entry.max_racks, [&](const std::vector<int>& chosen) {
      ExactBox within = box;
      bool possible = true;
      for (std::size_t s = 0; s < problem_.num_servers(); ++s) {
        const model::RackId rack = problem_.cluster().parts().servers[s].rack;
        if (std::ranges::none_of(chosen, [&](int k) { return racks[static_cast<std::size_t>(k)] == rack; })) {
          within.high[s] = 0;
          possible = possible && within.low[s] <= 0;
        }
      }
      if (possible) {
        price_within(job, prices, within, best_of);
      }
    });
  }
  std::erase_if(best_of, [](const PricedColumn& priced) { return priced.column.counts.empty(); });
  std::ranges::stable_sort(best_of, std::ranges::greater{}, &PricedColumn::value);
  if (best_of.size() > limit) {
    best_of.resize(limit);
  }
  return best_of;
}

void TreePricer::price_within(int job, const ExactPrices& prices, const ExactBox& box, std::vector<PricedColumn>& best_of) {
  const ExactJob& entry = problem_.jobs[static_cast<std::size_t>(job)];
  width_ = static_cast<std::size_t>(entry.max_workers) + 1;
  depth_ = entry.by_servers ? width_ : 1;
  count_forced(box);
  fill(entry, prices, box);
  close_apexes(entry, prices, box);
  for (int workers = entry.min_workers; workers <= entry.max_workers; ++workers) {
    PricedColumn& best = best_of[static_cast<std::size_t>(workers)];
    const Best* found = nullptr;
    for (std::size_t s = 0; s < depth_; ++s) {
      const Best& candidate = best_[static_cast<std::size_t>(workers) * depth_ + s];
      if (candidate.node < 0) {
        continue;
      }
      const double value = entry.gain_of(workers, entry.by_servers ? static_cast<int>(s) : 1) - candidate.cost;
      if (value > best.value) {
        best.value = value;
        found = &candidate;
      }
    }
    if (found == nullptr) {
      continue;
    }
    ExactColumn& column = best.column;
    column = {.job = job, .counts = {}, .crossings = {}, .embedding = {}};
    column.counts.assign(problem_.num_servers(), 0);
    if (found->alone) {
      column.counts[static_cast<std::size_t>(problem_.tree[static_cast<std::size_t>(found->node)].server)] =
          static_cast<std::int16_t>(workers);
    } else {
      trace(found->node, 2, workers, found->servers, column.counts);
    }
    column.crossings = tree_crossings(problem_, column.counts);
    column.gain = entry.gain_of(workers, entry.by_servers ? column.servers() : 1);
  }
}

void TreePricer::count_forced(const ExactBox& box) {
  for (std::size_t v = 0; v < problem_.tree.size(); ++v) {
    const ExactTreeNode& node = problem_.tree[v];
    forced_[v] = node.server >= 0 && box.low[static_cast<std::size_t>(node.server)] > 0 ? 1 : 0;
    for (const int child : node.children) {
      forced_[v] += forced_[static_cast<std::size_t>(child)];
    }
    if (node.edge >= 0 && box.low[problem_.num_servers() + static_cast<std::size_t>(node.edge)] > 0) {
      ++forced_[v];
    }
  }
}

void TreePricer::fill(const ExactJob& job, const ExactPrices& prices, const ExactBox& box) {
  const std::size_t size = width_ * depth_;
  for (std::size_t v = 0; v < problem_.tree.size(); ++v) {
    const ExactTreeNode& node = problem_.tree[v];
    tables_[v].assign(3 * size, kForbidden);
    tables_[v][0] = 0;
    reach_[v] = 0;
    std::size_t item = 0;
    if (node.server >= 0) {
      const auto server = static_cast<std::size_t>(node.server);
      contribution_.assign(size, kForbidden);
      const int most = std::min<int>(job.fits[server], box.high[server]);
      for (int y = std::max<int>(1, box.low[server]); y <= most; ++y) {
        contribution_[at(0, y, depth_ > 1 ? 1 : 0)] = y * prices.worker[server];
      }
      add_item(v, item++, most, box.low[server] <= 0);
    }
    for (const int child : node.children) {
      const auto c = static_cast<std::size_t>(child);
      const int edge = problem_.tree[c].edge;
      double way = 0;
      if (edge >= 0) {
        way = box.high[problem_.num_servers() + static_cast<std::size_t>(edge)] > 0 ? prices.crossing[static_cast<std::size_t>(edge)]
                                                                                    : kForbidden;
      }
      contribution_.assign(size, kForbidden);
      const int most = way < kForbidden ? reach_[c] : 0;
      for (std::size_t i = depth_; i < (static_cast<std::size_t>(most) + 1) * depth_; ++i) {  // from one worker on
        contribution_[i] = std::min(tables_[c][size + i], tables_[c][2 * size + i]) + way;
      }
      add_item(v, item++, most, forced_[c] == 0);
    }
  }
}

void TreePricer::add_item(std::size_t node, std::size_t item, int most, bool may_be_empty) {
  std::vector<Choice>& choices = choices_[node][item];
  const std::size_t size = width_ * depth_;
  next_.assign(3 * size, kForbidden);
  choices.resize(3 * size);
  const std::vector<double>& table = tables_[node];
  const auto most_workers = static_cast<int>(width_) - 1;
  const auto most_servers = static_cast<int>(depth_) - 1;
  const int first_server = most_servers > 0 ? 1 : 0;
  for (int parts = 0; parts <= 2; ++parts) {
    const int after = std::min(parts + 1, 2);
    for (int w = parts == 0 ? 0 : 1; w <= (parts == 0 ? 0 : reach_[node]); ++w) {
      for (int s = 0; s <= std::min(w, most_servers); ++s) {
        const double so_far = table[at(parts, w, s)];
        if (so_far == kForbidden) {
          continue;
        }
        if (may_be_empty && so_far < next_[at(parts, w, s)]) {
          next_[at(parts, w, s)] = so_far;
          choices[at(parts, w, s)] = {static_cast<std::int8_t>(parts), 0, 0};
        }
        for (int more = 1; more <= std::min(most, most_workers - w); ++more) {
          for (int t = first_server; t <= std::min({more, most_servers, most_servers - s}); ++t) {
            const double sum = so_far + contribution_[at(0, more, t)];
            const std::size_t to = at(after, w + more, s + t);
            if (sum < next_[to]) {
              next_[to] = sum;
              choices[to] = {static_cast<std::int8_t>(parts), static_cast<std::int16_t>(more), static_cast<std::int16_t>(t)};
            }
          }
        }
      }
    }
  }
  reach_[node] = std::min(reach_[node] + std::max(most, 0), most_workers);
  std::swap(tables_[node], next_);
}

void TreePricer::close_apexes(const ExactJob& job, const ExactPrices& prices, const ExactBox& box) {
  best_.assign(width_ * depth_, {});
  const int all = forced_.back();  // the root is last
  for (std::size_t v = 0; v < problem_.tree.size(); ++v) {
    const ExactTreeNode& node = problem_.tree[v];
    const bool way_forced = node.edge >= 0 && box.low[problem_.num_servers() + static_cast<std::size_t>(node.edge)] > 0;
    if (way_forced || forced_[v] != all) {
      continue;  // something above or beside v must be used
    }
    const auto consider = [&](int workers, int servers, double cost, bool alone) {
      Best& best = best_[static_cast<std::size_t>(workers) * depth_ + static_cast<std::size_t>(servers)];
      if (cost < best.cost) {
        best = {cost, static_cast<int>(v), servers, alone};
      }
    };
    for (int w = 2; w <= reach_[v]; ++w) {
      for (int s = 0; s < static_cast<int>(depth_); ++s) {
        consider(w, s, tables_[v][at(2, w, s)], false);
      }
    }
    const bool children_empty =
        std::ranges::all_of(node.children, [&](int child) { return forced_[static_cast<std::size_t>(child)] == 0; });
    if (node.server >= 0 && children_empty) {
      const auto server = static_cast<std::size_t>(node.server);
      const int most = std::min<int>(job.fits[server], box.high[server]);
      for (int y = std::max<int>(1, box.low[server]); y <= most; ++y) {
        consider(y, depth_ > 1 ? 1 : 0, y * prices.worker[server], true);
      }
    }
  }
}

void TreePricer::trace(int node, int parts, int workers, int servers, std::vector<std::int16_t>& counts) const {
  const auto v = static_cast<std::size_t>(node);
  const ExactTreeNode& entry = problem_.tree[v];
  for (std::size_t item = choices_[v].size(); item-- > 0;) {
    const Choice& choice = choices_[v][item][at(parts, workers, servers)];
    if (choice.workers > 0) {
      const bool own = entry.server >= 0 && item == 0;
      if (own) {
        counts[static_cast<std::size_t>(entry.server)] = choice.workers;
      } else {
        const int child = entry.children[item - (entry.server >= 0 ? 1 : 0)];
        const auto c = static_cast<std::size_t>(child);
        const bool one = tables_[c][at(1, choice.workers, choice.servers)] <= tables_[c][at(2, choice.workers, choice.servers)];
        trace(child, one ? 1 : 2, choice.workers, choice.servers, counts);
      }
    }
    workers -= choice.workers;
    servers -= choice.servers;
    parts = choice.parts;
  }
}

}  // namespace maypole::sched
