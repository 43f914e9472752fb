// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_builder.h"

#include "maypole/base/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>

namespace maypole::sched::gadget {

namespace {

constexpr int kRoutesTried = 6;   // choices whose paths are searched before the job is given up, where cuts are not links
constexpr double kMargin = 1e-9;  // relative: gains below it are noise

}  // namespace

Builder::Builder(const Topology& topology, const std::vector<Candidate>& candidates, const model::Amounts& pooled_prices, Work& work)
    : topology_(&topology),
      candidates_(&candidates),
      pooled_prices_(pooled_prices),
      work_(&work),
      space_(topology, candidates),
      pricer_(topology),
      no_prices_(Prices::zero(topology)),
      rings_(candidates.size()),
      all_racks_(static_cast<std::size_t>(topology.num_racks())),
      everywhere_(topology.num_servers() <= kServersEverywhere) {
  std::iota(all_racks_.begin(), all_racks_.end(), 0);
  if (prices_walks(topology)) {
    walks_.emplace(topology.cluster());
  }
}

double Builder::objective() const {
  double sum = 0;
  for (const Ring& ring : rings_) {
    sum += ring.value;
  }
  return sum;
}

void Builder::remove(int job) {
  Ring& ring = rings_[static_cast<std::size_t>(job)];
  space_.release(ring, candidate(job));
  ring = {};
}

void Builder::put(int job, Ring ring) {
  MAYPOLE_CHECK(rings_[static_cast<std::size_t>(job)].parts.empty());
  space_.take(ring, candidate(job));
  rings_[static_cast<std::size_t>(job)] = std::move(ring);
}

bool Builder::put_if_it_fits(int job, Ring ring) {
  const Candidate& here = candidate(job);
  if (ring.kept) {
    return keep(job);
  }
  const bool has_paths = ring.parts.size() > 1 && ring.paths.size() == ring.parts.size() && space_.holds(ring, here);
  if ((here.max_racks > 0 && num_racks(*topology_, ring) > here.max_racks) ||
      (!has_paths && !(space_.route(ring, here) && space_.holds(ring, here)))) {
    return false;
  }
  ring.value = here.value(ring.workers, static_cast<int>(ring.parts.size()));
  put(job, std::move(ring));
  return true;
}

void Builder::reset(std::vector<Ring> rings) {
  space_.clear();  // sums of many doubles drift; a fresh start does not
  rings_.assign(candidates_->size(), {});
  for (std::size_t i = 0; i < rings.size(); ++i) {
    put(static_cast<int>(i), std::move(rings[i]));
  }
}

double Builder::unit_price(const Candidate& candidate) const {
  double price = 0;
  double share = 0;
  for (std::size_t i = 0; i < pooled_prices_.size(); ++i) {
    const auto r = model::ResourceId::from_index(i);
    price += pooled_prices_[r] * candidate.job->demand[r];
    const double total = topology_->cluster().total_capacity()[r];
    share = total > 0 ? std::max(share, candidate.job->demand[r] / total) : share;
  }
  return price > 0 ? price : share;
}

std::optional<Ring> Builder::running_ring(int job) const {
  const Candidate& here = candidate(job);
  if (!here.keepable) {
    return std::nullopt;
  }
  Ring ring = ring_of(*here.active->current);
  ring.value = here.keep_value;
  ring.kept = true;
  return space_.holds(ring, here) ? std::optional<Ring>(std::move(ring)) : std::nullopt;
}

bool Builder::keep(int job) {
  std::optional<Ring> ring = running_ring(job);
  if (!ring) {
    return false;
  }
  put(job, *std::move(ring));
  return true;
}

bool Builder::place(int job, const Prices& prices, double scale) {
  std::optional<Ring> found = find(job, prices, {.scale = scale});
  if (std::optional<Ring> running = running_ring(job)) {
    const auto net = [&](const Ring& ring) { return ring.value - scale * pricer_.cost(ring, candidate(job), prices); };
    if (const double kept = net(*running); kept > 0 && (!found || kept >= net(*found))) {
      found = std::move(running);
    }
  }
  if (!found) {
    return false;
  }
  put(job, *std::move(found));
  return true;
}

bool Builder::place_least(int job) {
  std::optional<Ring> found = find(job, no_prices_, {.dense = true});
  if (!found) {
    return false;
  }
  put(job, *std::move(found));
  return true;
}

std::optional<Ring> Builder::find(int job, const Prices& prices, const Goal& goal) {
  const Candidate& here = candidate(job);
  if (here.limit == 0) {
    return std::nullopt;
  }
  Best best{.score = 0, .ring = {}};
  const int racks_allowed = here.max_racks == 0 ? topology_->num_racks() : here.max_racks;
  const double demand = here.job->demand[space_.primary()];
  if (everywhere_) {
    search(job, prices, goal, all_racks_, /*cross=*/racks_allowed >= topology_->num_racks(), best);
    if (racks_allowed > 1 && racks_allowed < topology_->num_racks()) {
      search(job, prices, goal, racks_together(job, demand * here.limit), /*cross=*/true, best);
    }
  } else {
    // What it would take if every server had the pooled price.
    int wanted = here.min;
    double most = -std::numeric_limits<double>::infinity();
    const double unit = unit_price(here);
    for (const Vertex& vertex : here.hull) {
      const double score =
          goal.dense ? (vertex.workers <= goal.from_workers ? most : -vertex.workers) : vertex.value - unit * vertex.workers;
      if (score > most) {
        most = score;
        wanted = std::max(here.min, vertex.workers);
      }
    }
    for (const int rack : likely_racks(job, demand * wanted)) {
      search(job, prices, goal, {&rack, 1}, /*cross=*/false, best);
    }
    if (best.ring.workers < wanted && racks_allowed > 1 && topology_->num_racks() > 1) {
      search(job, prices, goal, racks_together(job, demand * wanted), /*cross=*/true, best);
    }
  }
  return best.ring.parts.empty() ? std::nullopt : std::optional<Ring>(std::move(best.ring));
}

// Looks at all sizes in these racks; whether that improved `best`.
bool Builder::search(int job, const Prices& prices, const Goal& goal, std::span<const int> racks, bool cross, Best& best) {
  const Candidate& here = candidate(job);
  pricer_.run({.candidate = &here, .space = &space_, .prices = &prices, .scale = goal.scale, .racks = racks, .cross = cross});
  work_->columns += static_cast<std::int64_t>(pricer_.choices().size());
  struct Scored {
    double score = 0;
    const Pricer::Choice* choice = nullptr;
  };
  std::vector<Scored> scored;
  for (const Pricer::Choice& choice : pricer_.choices()) {
    if (choice.workers <= goal.from_workers) {
      continue;
    }
    double score = choice.value - choice.cost - goal.from_value;
    if (score <= kMargin * here.best) {
      continue;
    }
    if (goal.dense) {
      score /= choice.workers - goal.from_workers;
    }
    if (score > best.score) {
      scored.push_back({score, &choice});
    }
  }
  std::ranges::stable_sort(scored, [](const Scored& a, const Scored& b) { return a.score > b.score; });
  for (std::size_t k = 0; k < scored.size() && k < kRoutesTried; ++k) {
    Ring ring;
    ring.parts = pricer_.parts(*scored[k].choice);
    ring.workers = scored[k].choice->workers;
    ring.value = here.value(ring.workers, static_cast<int>(ring.parts.size()));
    double score = ring.value - scored[k].choice->cost - goal.from_value;
    if (goal.dense) {
      score /= ring.workers - goal.from_workers;
    }
    if (score > best.score && space_.route(ring, here)) {
      best.score = score;
      best.ring = std::move(ring);
      return true;
    }
  }
  return walks_ && here.max_racks == 0 && !scored.empty() && search_walks(job, prices, goal, best);
}

// Where none of the cut tree's proposals finds its paths one after the other: closed walks over what is free.
bool Builder::search_walks(int job, const Prices& prices, const Goal& goal, Best& best) {
  const Candidate& here = candidate(job);
  WalkPrices walk_prices = WalkPrices::zero(topology_->cluster());
  for (std::size_t k = 0; k < prices.amount.size(); ++k) {
    walk_prices.amount[k] = goal.scale * prices.amount[k];
  }
  walks_->run(here, space_, walk_prices);
  work_->columns += static_cast<std::int64_t>(here.limit) * topology_->num_servers();
  bool improved = false;
  for (const WalkPricer::Found& found : walks_->found()) {
    if (found.ring.workers <= goal.from_workers || found.ring.workers < here.min) {
      continue;
    }
    const double value = here.value(found.ring.workers, static_cast<int>(found.ring.parts.size()));
    double score = value - found.cost - goal.from_value;
    if (score <= kMargin * here.best) {
      continue;
    }
    if (goal.dense) {
      score /= found.ring.workers - goal.from_workers;
    }
    if (score > best.score && space_.holds(found.ring, here)) {
      best.score = score;
      best.ring = found.ring;
      best.ring.value = value;
      improved = true;
    }
  }
  return improved;
}

std::vector<int> Builder::likely_racks(int job, double wanted) const {
  const Candidate& here = candidate(job);
  std::vector<int> racks;
  const auto add = [&](int rack) {
    if (rack >= 0 && std::ranges::find(racks, rack) == racks.end()) {
      racks.push_back(rack);
    }
  };
  if (here.active->running()) {
    for (const model::ServerId server : here.active->current->ring) {
      if (racks.empty() || topology_->rack_of(server.value()) != racks.back()) {
        add(topology_->rack_of(server.value()));
      }
      if (racks.size() == 2) {
        break;
      }
    }
  }
  int tightest = -1;
  int emptiest = -1;
  for (int rack = 0; rack < topology_->num_racks(); ++rack) {
    const double free = space_.free_in_rack(rack);
    if (free >= wanted && (tightest < 0 || free < space_.free_in_rack(tightest))) {
      tightest = rack;
    }
    if (emptiest < 0 || free > space_.free_in_rack(emptiest)) {
      emptiest = rack;
    }
  }
  const double demand = here.job->demand[space_.primary()];
  const int workers = demand > 0 ? static_cast<int>(std::lround(wanted / demand)) : here.min;
  for (int w = workers; w >= here.min; w = w > here.min ? std::max(here.min, w / 2) : 0) {
    if (const int server = space_.tightest_server(*here.job, w); server >= 0) {
      add(topology_->rack_of(server));
      break;
    }
  }
  add(tightest);
  add(emptiest);
  return racks;
}

std::vector<int> Builder::racks_together(int job, double wanted) const {
  const Candidate& here = candidate(job);
  // The lowest, then fullest, part that has enough; else all.
  std::vector<int> racks = all_racks_;
  double part_free = std::numeric_limits<double>::infinity();
  int depth = -1;
  for (const int node : topology_->upper()) {
    const std::vector<int>& below = topology_->racks_below(node);
    double free = 0;
    for (const int rack : below) {
      free += space_.free_in_rack(rack);
    }
    if (free >= wanted && (topology_->depth(node) > depth || (topology_->depth(node) == depth && free < part_free))) {
      depth = topology_->depth(node);
      part_free = free;
      racks = below;
    }
  }
  std::ranges::stable_sort(racks, [&](int a, int b) { return space_.free_in_rack(a) > space_.free_in_rack(b); });
  // One more rack than the sums call for, since not all that is free may be usable, unless the number is limited.
  std::size_t count = 0;
  double sum = 0;
  while (count < racks.size() && sum < wanted) {
    sum += space_.free_in_rack(racks[count++]);
  }
  count = std::min(racks.size(), count + 1);
  if (here.max_racks > 0) {
    count = std::min(racks.size(), static_cast<std::size_t>(here.max_racks));
  }
  racks.resize(count);
  std::ranges::sort(racks);
  return racks;
}

double Builder::next_density(int job) const {
  const Candidate& here = candidate(job);
  const Ring& ring = rings_[static_cast<std::size_t>(job)];
  double best = 0;
  for (const Vertex& vertex : here.hull) {
    if (vertex.workers > ring.workers) {
      best = std::max(best, (vertex.value - ring.value) / (vertex.workers - ring.workers));
    }
  }
  return best / unit_price(here);
}

void Builder::fill(std::span<const int> jobs) {
  struct Item {
    double density = 0;
    int job = 0;
    bool operator<(const Item& other) const { return density != other.density ? density < other.density : job > other.job; }
  };
  std::priority_queue<Item> queue;
  for (const int job : jobs) {
    if (const double density = candidate(job).limit > 0 ? next_density(job) : 0; density > 0) {
      queue.push({density, job});
    }
  }
  while (!queue.empty()) {
    const Item item = queue.top();
    queue.pop();
    Ring old = rings_[static_cast<std::size_t>(item.job)];
    remove(item.job);
    std::optional<Ring> found = find(item.job, no_prices_, {.dense = true, .from_workers = old.workers, .from_value = old.value});
    if (!found) {
      put(item.job, std::move(old));
      continue;
    }
    const double density = (found->value - old.value) / (found->workers - old.workers) / unit_price(candidate(item.job));
    if (!queue.empty() && density < queue.top().density * (1 - kMargin) && density < item.density * (1 - kMargin)) {
      put(item.job, std::move(old));
      queue.push({density, item.job});
      continue;
    }
    put(item.job, std::move(*found));
    if (const double next = next_density(item.job); next > 0) {
      queue.push({next, item.job});
    }
  }
}

}  // namespace maypole::sched::gadget
