// SPDX-License-Identifier: Apache-2.0
#pragma once

// From "these processes form a ring" to authenticated, connected sockets. Everything that blocks, resolves names or proves secrets
// happens here, before the progress thread starts; afterwards the sockets are only read and written.

#include "maypole/base/fd.h"
#include "maypole/base/units.h"
#include "maypole/model/ring.h"

#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace maypole::comm {

/// Sockets per link, so that no lane's bytes wait behind another's. Control is the only lane used in both directions.
enum class Lane : std::uint8_t { kReduceScatter = 0, kAllGather = 1, kUser = 2, kControl = 3 };
inline constexpr int kNumLanes = 4;

enum class TransportChoice : std::uint8_t { kAuto, kShm, kTcp };

struct ConnectOptions {
  int rank = 0;
  int num_ranks = 1;
  std::string job_id;
  std::uint32_t epoch = 1;
  std::string secret;  // shared by the job's workers; proven both ways (HMAC-SHA256 over fresh nonces) before any other byte is believed.
                       // Empty is allowed only where every address is loopback: without it anyone who reaches a port could join
  std::string rendezvous;        // "address:port" or "[v6]:port" or "name:port" where rank 0 listens
  int rendezvous_listener = -1;  // rank 0 only: an inherited listening socket, not taken over (a later ring may use it); -1: bind it here
  std::string host;              // host entry of the launcher; empty: derived from the machine
  std::string interface;         // peers reach this rank, and it them, by this interface; "": the one that routes to the peer
  TransportChoice transport = TransportChoice::kAuto;
  base::Bandwidth edge_bandwidth;                        // paces the edge to the next rank; a paced edge is tcp
  base::Nanoseconds deadline = std::chrono::minutes(5);  // for the whole forming
};

/// One established link to a peer. For shm links `sockets` are AF_UNIX stream sockets (they can pass descriptors) and only kControl is set.
struct Link {
  int peer = 0;
  bool shared_memory = false;
  int exchange = -1;                        // k of an exchange link to rank XOR 2^k; -1: a ring link
  std::array<base::Fd, kNumLanes> sockets;  // non-blocking, TCP_NODELAY, cubic where the kernel permits
  std::string local_address;
  std::string remote_address;
};

/// The ring's links as seen by one rank. With P = 1 all are empty. With P = 2 next and previous are two distinct links to the same peer.
struct Connections {
  model::Ring ring;            // ordered members with addresses, the same value on all ranks
  std::vector<Link> next;      // exactly one for P > 1: this rank sends data on it
  std::vector<Link> previous;  // exactly one for P > 1: this rank receives data from it
  std::vector<Link> exchange;  // by ascending k = Link::exchange, for the logarithmic algorithms; data both ways, lane kUser only
};

/// Meets the peers at rank 0, checks that all agree on job, epoch, size and secret, and connects the links. All ranks succeed, or none.
/// Blocks up to the deadline (an error may take two seconds more, to tell it to all). Errors name the rank, address and port that failed
/// and the remedy; a wrong secret is kUnauthenticated.
[[nodiscard]] absl::StatusOr<Connections> connect_ring(const ConnectOptions& options);

}  // namespace maypole::comm
