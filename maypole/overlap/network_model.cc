// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/network_model.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace maypole::overlap {
namespace {

constexpr std::array kCollectives = {Collective::kRing, Collective::kHalvingDoubling, Collective::kHierarchical};

// Start-up times per hop that the constants fitted at 64 workers imply: 7.04 ms and 0.81 ms over 126 hops.
constexpr double kEthernetAlpha = 56e-6;
constexpr double kInfinibandAlpha = 6.4e-6;

constexpr EdgeCost kWithinHost{5e-6, 1 / 12e9};  // PCI Express 3 x16

struct Preset {
  std::string_view name;
  double bits_per_second;
  double alpha_s;
};
constexpr std::array kPresets = {Preset{"1GbE", 1e9, kEthernetAlpha},        Preset{"10GbE", 10e9, kEthernetAlpha},
                                 Preset{"25GbE", 25e9, kEthernetAlpha},      Preset{"40GbE", 40e9, kEthernetAlpha},
                                 Preset{"100GbE", 100e9, kEthernetAlpha},    Preset{"400GbE", 400e9, kEthernetAlpha},
                                 Preset{"56GbIB", 56e9, kInfinibandAlpha},   Preset{"100GbIB", 100e9, kInfinibandAlpha},
                                 Preset{"200GbIB", 200e9, kInfinibandAlpha}, Preset{"400GbIB", 400e9, kInfinibandAlpha}};

// All-reduce of n bytes by 64 workers: alpha + n beta, as DeAR's authors fitted it to their cluster (mgwfbp/hv_distributed_optimizer.py
// of their public code, github.com/lzhangbv/dear_pytorch).
struct Fitted {
  std::string_view name;
  double alpha_s;
  double beta_s_per_byte;
};
constexpr std::size_t kFittedWorkers = 64;
constexpr std::array kFitted = {Fitted{"paper-10GbE", 7.04e-3, 9.64e-10}, Fitted{"paper-100GbIB", 0.81e-3, 5.89e-10}};

/// One phase on a ring of `members`.
PhaseCost ring(const EdgeCost& edge, double members) {
  return {(members - 1) * edge.alpha_s, (members - 1) / members * edge.beta_s_per_byte};
}

std::size_t hosts(const Network& network, std::size_t workers) {
  return (workers + network.workers_per_host - 1) / network.workers_per_host;
}

const EdgeCost& slowest(const Network& network, std::size_t workers) {
  return hosts(network, workers) > 1 ? network.between_hosts : network.within_host;
}

bool is_cost(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::kRing:
      return "ring";
    case Collective::kHalvingDoubling:
      return "halving-doubling";
    case Collective::kHierarchical:
      return "hierarchical";
  }
  return "?";
}

absl::StatusOr<Collective> parse_collective(std::string_view name) {
  for (const Collective collective : kCollectives) {
    if (name == name_of(collective)) {
      return collective;
    }
  }
  return base::error(absl::StatusCode::kInvalidArgument, "collective '{}' is unknown; take one of ring, halving-doubling, hierarchical",
                     name);
}

PhaseCost phase_cost(const Network& network, std::size_t workers) {
  if (workers <= 1) {
    return {};
  }
  const auto members = static_cast<double>(workers);
  const EdgeCost& edge = slowest(network, workers);
  switch (network.collective) {
    case Collective::kRing:
      return ring(edge, members);
    case Collective::kHalvingDoubling: {
      const auto even = static_cast<double>(std::bit_floor(workers));
      PhaseCost cost{std::log2(even) * edge.alpha_s, (even - 1) / even * edge.beta_s_per_byte};
      if (even < members) {
        cost.start_s += edge.alpha_s;
        cost.s_per_byte += edge.beta_s_per_byte;
      }
      return cost;
    }
    case Collective::kHierarchical: {
      const auto within = static_cast<double>(std::min(workers, network.workers_per_host));
      const PhaseCost inner = ring(network.within_host, within);
      const PhaseCost outer = ring(network.between_hosts, static_cast<double>(hosts(network, workers)));
      return {inner.start_s + outer.start_s, inner.s_per_byte + outer.s_per_byte / within};
    }
  }
  return {};
}

double contention_s_per_byte(const Network& network, std::size_t workers) {
  return hosts(network, workers) > 1 ? network.contention_s_per_byte : 0;
}

double segment_s(const Network& network, std::size_t workers) {
  return static_cast<double>(network.segment_bytes) * slowest(network, workers).beta_s_per_byte;
}

absl::StatusOr<Network> named_network(std::string_view name) {
  Network network;
  network.name = std::string(name);
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      network.between_hosts = {preset.alpha_s, 8 / (preset.bits_per_second * base::kPayloadShare)};
      network.within_host = kWithinHost;
      return network;
    }
  }
  for (const Fitted& fitted : kFitted) {
    if (fitted.name == name) {
      network.between_hosts = edge_from_all_reduce(fitted.alpha_s, fitted.beta_s_per_byte, kFittedWorkers);
      network.within_host = kWithinHost;
      return network;
    }
  }
  const absl::StatusOr<base::Bandwidth> rate = base::parse_bandwidth(name);
  if (!rate.ok()) {
    const bool like_a_rate = !name.empty() && name.front() >= '0' && name.front() <= '9';
    return base::error(absl::StatusCode::kInvalidArgument, "network '{}' is unknown: take one of {}, or a rate such as 2.5Gbps{}", name,
                       fmt::join(network_names(), ", "), like_a_rate ? " (" + base::message(rate.status()) + ")" : std::string());
  }
  network.between_hosts = {kEthernetAlpha, 1 / rate->bytes_per_second};
  network.within_host = kWithinHost;
  return network;
}

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    names.emplace_back(preset.name);
  }
  for (const Fitted& fitted : kFitted) {
    names.emplace_back(fitted.name);
  }
  return names;
}

EdgeCost edge_from_all_reduce(double alpha_s, double beta_s_per_byte, std::size_t workers) {
  const auto hops = static_cast<double>(2 * (workers - 1));
  return {alpha_s / hops, beta_s_per_byte * static_cast<double>(workers) / hops};
}

absl::Status check_network(const Network& network) {
  for (const EdgeCost& edge : {network.between_hosts, network.within_host}) {
    if (!is_cost(edge.alpha_s)) {
      return base::error(absl::StatusCode::kInvalidArgument, "network '{}': the start-up time is {} s: it must be zero or above",
                         network.name, edge.alpha_s);
    }
    if (!is_cost(edge.beta_s_per_byte)) {
      return base::error(absl::StatusCode::kInvalidArgument,
                         "network '{}': the time per byte is {} s: it must be zero or above, and a bandwidth of zero moves nothing",
                         network.name, edge.beta_s_per_byte);
    }
  }
  if (network.workers_per_host == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "network '{}': a host needs at least one worker", network.name);
  }
  if (!is_cost(network.contention_s_per_byte)) {
    return base::error(absl::StatusCode::kInvalidArgument, "network '{}': the contention is {} s per byte: it must be zero or above",
                       network.name, network.contention_s_per_byte);
  }
  return absl::OkStatus();
}

}  // namespace maypole::overlap
