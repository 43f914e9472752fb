// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/paper_cluster.h"

#include "maypole/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace maypole::sim {

namespace {

constexpr double kBytesPerGigabit = 1e9 / 8;

base::Bandwidth drawn_rate(base::Rng& rng, double low_gbps, double high_gbps, double scale) {
  return {rng.uniform(low_gbps, high_gbps) * kBytesPerGigabit * base::kPayloadShare * scale};
}

std::vector<double> drawn_gpus(const PaperClusterOptions& options, base::Rng& rng) {
  constexpr int kGpus[] = {1, 2, 4, 8};
  std::vector<double> gpus;
  for (int s = 0; s < options.servers; ++s) {
    gpus.push_back(kGpus[rng.uniform_int(0, 3)]);
  }
  if (options.total_gpus > 0) {
    const double scale = options.total_gpus / std::accumulate(gpus.begin(), gpus.end(), 0.0);
    double wanted = 0;  // rounding errors are carried on, so that the sum is met where no server is lifted to 1
    double given = 0;
    for (double& count : gpus) {
      wanted += count * scale;
      count = std::max(1.0, std::round(wanted - given));
      given += count;
    }
  }
  return gpus;
}

}  // namespace

model::Cluster paper_cluster(const PaperClusterOptions& options, base::Rng& rng) {
  model::ClusterParts parts;
  parts.resources = {"gpu"};
  const auto num_racks = static_cast<int>(rng.uniform_int(2, 5));
  const auto core = model::NodeId(options.servers + num_racks);
  const auto add_pair = [&parts](const std::string& lower, const std::string& upper, model::NodeId from, model::NodeId to,
                                 base::Bandwidth bandwidth) {
    parts.links.push_back({lower + ">" + upper, from, to, bandwidth});
    parts.links.push_back({upper + ">" + lower, to, from, bandwidth});
  };
  const std::vector<double> gpus = drawn_gpus(options, rng);
  for (int s = 0; s < options.servers; ++s) {
    model::Server server;
    server.id = fmt::format("s{:02}", s);
    // The first servers open the racks, so that none is empty.
    server.rack = model::RackId(s < num_racks ? s : static_cast<int>(rng.uniform_int(0, num_racks - 1)));
    server.capacity.assign(1, gpus[static_cast<std::size_t>(s)]);
    add_pair(server.id, fmt::format("r{}", server.rack.value()), model::NodeId(s), model::NodeId(options.servers + server.rack.value()),
             drawn_rate(rng, 10, 100, options.link_scale));
    parts.servers.push_back(std::move(server));
  }
  for (int r = 0; r < num_racks; ++r) {
    parts.racks.push_back(fmt::format("r{}", r));
    parts.switches.push_back({parts.racks.back(), model::RackId(r)});
    add_pair(parts.racks.back(), "core", model::NodeId(options.servers + r), core, drawn_rate(rng, 200, 3200, options.link_scale));
  }
  parts.switches.push_back({"core", model::RackId()});
  auto cluster = model::Cluster::make(std::move(parts));
  MAYPOLE_CHECK(cluster.ok());
  return std::move(cluster).value();
}

}  // namespace maypole::sim
