// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a collective costs on a network, by the alpha-beta model: a message of n bytes over one edge takes alpha + n beta.
//
// A reduce-scatter (RS) and an all-gather (AG) of n bytes by P workers cost the same, and each is affine in n:
//
//   ring              (P-1) alpha + n beta (P-1)/P, by the slowest edge
//   halving-doubling  log2(P) alpha + n beta (P-1)/P; where P is no power of two, the surplus folds in first: + alpha + n beta
//   hierarchical      a ring within each host over n bytes, then one between hosts over n/G, G workers a host
//
// The reduction itself is not counted.

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::overlap {

enum class Collective { kRing, kHalvingDoubling, kHierarchical };

[[nodiscard]] std::string_view name_of(Collective collective);
/// Errors list the names there are.
[[nodiscard]] absl::StatusOr<Collective> parse_collective(std::string_view name);

struct EdgeCost {
  double alpha_s = 0;          // one-way start-up time
  double beta_s_per_byte = 0;  // inverse payload bandwidth
};

struct Network {
  std::string name;
  EdgeCost between_hosts;
  EdgeCost within_host;
  std::size_t workers_per_host = 1;
  Collective collective = Collective::kRing;
  std::size_t segment_bytes = 128 << 10;  // what a sender finishes before it looks for something more urgent
  double contention_s_per_byte = 0;       // computing that each byte sent between hosts costs
};

/// One phase (RS or AG) as an affine function of the bytes of the group.
struct PhaseCost {
  double start_s = 0;
  double s_per_byte = 0;
  [[nodiscard]] double operator()(double bytes) const { return start_s + bytes * s_per_byte; }
};

/// Workers fill hosts one after another. A world of one exchanges nothing: zero.
[[nodiscard]] PhaseCost phase_cost(const Network& network, std::size_t workers);
/// Computing that each byte sent costs; within one host it is copied, not sent, and costs none.
[[nodiscard]] double contention_s_per_byte(const Network& network, std::size_t workers);
/// How long one segment occupies an edge.
[[nodiscard]] double segment_s(const Network& network, std::size_t workers);

/// 1GbE .. 400GbE and 56GbIB .. 400GbIB (nominal rate, 0.95 of it payload; start-up 56 us on Ethernet, 6.4 us on InfiniBand), paper-10GbE
/// and paper-100GbIB (the constants fitted to the paper's 64 workers), and any rate that people write, as 2.5Gbps (start-up 56 us). Within
/// a host: 12 GB/s, 5 us. Errors name what there is; no bandwidth is an error too.
[[nodiscard]] absl::StatusOr<Network> named_network(std::string_view name);
[[nodiscard]] std::vector<std::string> network_names();

/// A ring on which the all-reduce of n bytes by `workers` takes alpha_s + n * beta_s_per_byte in all.
[[nodiscard]] EdgeCost edge_from_all_reduce(double alpha_s, double beta_s_per_byte, std::size_t workers);

/// Errors: negative or infinite costs, no bandwidth, no workers per host.
[[nodiscard]] absl::Status check_network(const Network& network);

}  // namespace maypole::overlap
