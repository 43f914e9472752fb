// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the workers tell each other when they meet, and what follows from it: which link goes where, over what. Pure values;
// every rank derives the same links from the same table.

#include "maypole/comm/connections.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <span>
#include <vector>

namespace maypole::comm {

/// One worker as it presents itself at the rendezvous.
struct Worker {
  int rank = 0;
  int num_ranks = 0;
  std::string job;
  std::uint32_t epoch = 0;
  std::string host_entry;  // of the launcher; may be empty
  std::string host_name;   // what the machine calls itself
  std::string machine;     // net::machine_identity
  std::string address;     // numeric, without scope; rank 0 may leave it to the rendezvous, which knows where it was reached
  std::uint16_t port = 0;  // of the data listener
  std::string local_name;  // of the AF_UNIX data listener
  TransportChoice transport = TransportChoice::kAuto;
  base::Bandwidth edge_bandwidth;
  base::Nanoseconds patience{};  // until its own deadline
  bool operator==(const Worker&) const = default;

  /// "host entry", or the machine's own name without one: for people.
  [[nodiscard]] const std::string& host() const { return host_entry.empty() ? host_name : host_entry; }
};

using RingTable = std::vector<Worker>;  // [rank]

/// What is sent over a rendezvous connection, both ways.
struct RendezvousMessage {
  enum class Kind : std::uint8_t {
    kError = 0,   // either way: ends the forming for everyone (from a refused stranger's view: for it)
    kWorker = 1,  // worker to rank 0: `workers` has one
    kTable = 2,   // rank 0 to workers: all of them
    kLinked = 3,  // worker to rank 0: its links stand
    kFormed = 4,  // rank 0 to workers: all links of all stand
  };
  Kind kind = Kind::kError;
  absl::Status status;
  RingTable workers;
};

inline constexpr std::size_t kWorkerMessageLimit = 8192;
inline constexpr std::size_t kTableMessageLimit = std::size_t{32} << 20;

[[nodiscard]] std::vector<std::byte> encode(const RendezvousMessage& message);
[[nodiscard]] absl::StatusOr<RendezvousMessage> decode(std::span<const std::byte> bytes);

/// Finds what no single worker can see: different transport choices, shared memory between machines, a loopback address that
/// workers on other machines are given.
[[nodiscard]] absl::Status check_table(const RingTable& table);

enum class LinkKind : std::uint8_t { kNext, kPrevious, kExchange };

struct PlannedLink {
  LinkKind kind = LinkKind::kNext;
  int level = 0;  // kExchange: k of rank XOR 2^k
  int peer = 0;
  bool shared_memory = false;
  bool initiates = false;  // this rank connects, the peer accepts
  bool operator==(const PlannedLink&) const = default;

  /// The lanes that get a socket: all on TCP ring links, kUser on TCP exchange links, kControl on shared memory.
  [[nodiscard]] std::vector<Lane> lanes() const;
};

/// All links of `rank`: next, previous, then exchange by level. With Q the largest power of two within P, ranks below Q exchange at all
/// levels below log2 Q, and each rank r >= Q has one link, to r - Q, at level log2 Q.
[[nodiscard]] std::vector<PlannedLink> plan_links(const RingTable& table, int rank);

/// The value that all ranks report as Connections::ring.
[[nodiscard]] model::Ring ring_of(const RingTable& table);

}  // namespace maypole::comm
