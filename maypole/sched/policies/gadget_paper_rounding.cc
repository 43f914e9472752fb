// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper_rounding.h"

#include "maypole/sched/free_capacity.h"

#include <algorithm>
#include <cmath>

namespace maypole::sched {

namespace {

using model::LinkId;

double factor(double eps, double delta, std::size_t count) {
  return 1 + eps * std::sqrt(2 * delta * std::log(static_cast<double>(std::max<std::size_t>(count, 3))));
}

bool keeps_capacity_factors(const PaperFactors& reached, const PaperFactors& allowed) {
  bool keeps = reached.gamma <= allowed.gamma * (1 + kFitTolerance);
  for (std::size_t r = 0; r < allowed.beta.size(); ++r) {
    keeps = keeps && reached.beta[r] <= allowed.beta[r] * (1 + kFitTolerance);
  }
  return keeps;
}

double worst_load(const PaperFactors& reached) { return std::max(reached.gamma, *std::ranges::max_element(reached.beta)); }

}  // namespace

PaperFactors theorem_factors(const PaperSlot& slot, const std::vector<int>& sizes) {
  const model::Cluster& cluster = slot.cluster();
  PaperFactors factors;
  factors.alpha = 1.0 / 3;
  const auto squared = [&](std::size_t i) { return static_cast<double>(sizes[i]) * sizes[i]; };
  for (std::size_t r = 0; r < cluster.num_resources(); ++r) {
    double eps = 0;
    double delta = 0;
    for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
      double sum = 0;
      for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
        const PaperJob& job = slot.jobs[i];
        if (sizes[i] > 0 && job.host[s] && job.demand[r] > 0) {
          sum += squared(i);
          eps = std::max(eps, std::min(1.0, job.demand[r] / cluster.parts().servers[s].capacity[model::ResourceId::from_index(r)]));
        }
      }
      delta = std::max(delta, sum);
    }
    factors.beta.push_back(factor(eps, delta, cluster.num_servers()));
  }
  double eps = 0;
  double delta = 0;
  std::size_t limited = 0;
  for (std::size_t l = 0; l < cluster.num_links(); ++l) {
    const double capacity = link_capacity(cluster, LinkId::from_index(l));
    if (!std::isfinite(capacity)) {
      continue;
    }
    ++limited;
    double sum = 0;
    for (std::size_t i = 0; i < slot.jobs.size(); ++i) {
      const PaperJob& job = slot.jobs[i];
      if (sizes[i] > 1 && job.bandwidth > 0 && job.bandwidth <= capacity) {
        sum += squared(i);
        eps = std::max(eps, job.bandwidth / capacity);
      }
    }
    delta = std::max(delta, sum);
  }
  factors.gamma = factor(eps, delta, limited);
  return factors;
}

PaperDrawing measure_drawing(const PaperSlot& slot, const std::vector<int>& sizes, std::vector<std::optional<model::Embedding>> embeddings,
                             double optimum) {
  const model::Cluster& cluster = slot.cluster();
  std::vector<std::vector<double>> servers(cluster.num_servers(), std::vector<double>(cluster.num_resources(), 0));
  std::vector<double> links(cluster.num_links(), 0);
  PaperDrawing drawing;
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    if (!embeddings[i]) {
      continue;
    }
    drawing.utility += slot.jobs[i].gain[static_cast<std::size_t>(sizes[i])];
    for (const model::ServerId server : embeddings[i]->ring) {
      for (std::size_t r = 0; r < slot.jobs[i].demand.size(); ++r) {
        servers[server.index()][r] += slot.jobs[i].demand[r];
      }
    }
    for (const std::vector<LinkId>& edge : embeddings[i]->edges) {
      for (const LinkId link : edge) {
        links[link.index()] += slot.jobs[i].bandwidth;
      }
    }
  }
  drawing.embeddings = std::move(embeddings);
  drawing.reached.alpha = optimum > 0 ? drawing.utility / optimum : 1;
  drawing.reached.beta.assign(cluster.num_resources(), 0);
  for (std::size_t s = 0; s < servers.size(); ++s) {
    for (std::size_t r = 0; r < servers[s].size(); ++r) {
      if (servers[s][r] > 0) {
        const double load = servers[s][r] / cluster.parts().servers[s].capacity[model::ResourceId::from_index(r)];
        drawing.reached.beta[r] = std::max(drawing.reached.beta[r], load);
        drawing.overloaded += load > 1 + kFitTolerance ? 1 : 0;
      }
    }
  }
  for (std::size_t l = 0; l < links.size(); ++l) {
    const double load = links[l] / link_capacity(cluster, LinkId::from_index(l));
    drawing.reached.gamma = std::max(drawing.reached.gamma, load);
    drawing.overloaded += load > 1 + kFitTolerance ? 1 : 0;
  }
  return drawing;
}

PaperRounding round_randomly(const PaperSlot& slot, const std::vector<int>& sizes, const WeightedMappings& mappings, double optimum,
                             const PaperFactors& factors, int most, base::Rng& rng) {
  PaperRounding best;
  bool best_keeps = false;
  for (int iter = 0; iter < std::max(most, 1) && !best.satisfied; ++iter) {
    std::vector<std::optional<model::Embedding>> embeddings(slot.jobs.size());
    for (std::size_t i = 0; i < mappings.size(); ++i) {
      double draw = rng.uniform();
      for (const WeightedMapping& mapping : mappings[i]) {
        draw -= mapping.weight;
        if (draw < 0) {
          embeddings[i] = mapping.embedding;
          break;
        }
      }
    }
    PaperDrawing drawing = measure_drawing(slot, sizes, std::move(embeddings), optimum);
    const bool keeps = keeps_capacity_factors(drawing.reached, factors);
    const bool better = iter == 0 || (keeps && !best_keeps) || (keeps == best_keeps && keeps && drawing.utility > best.drawing.utility) ||
                        (keeps == best_keeps && !keeps && worst_load(drawing.reached) < worst_load(best.drawing.reached));
    const bool satisfied = keeps && drawing.reached.alpha >= factors.alpha;
    if (better || satisfied) {
      best.drawing = std::move(drawing);
      best_keeps = keeps;
    }
    best.satisfied = satisfied;
    best.roundings = iter + 1;
  }
  return best;
}

}  // namespace maypole::sched
