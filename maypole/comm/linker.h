// SPDX-License-Identifier: Apache-2.0
#pragma once

// Makes one rank's links once the table of workers is known. The rank that sends on a ring edge connects it, the lower rank connects
// an exchange link; the other end accepts. Each socket proves the secret anew, with epoch, both ranks, lane and level in the proof, so
// that none can be taken for another.

#include "maypole/comm/connections.h"
#include "maypole/comm/ring_table.h"
#include "maypole/net/address.h"
#include "maypole/net/proof.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <string>

namespace maypole::comm {

/// Where peers connect to this rank.
struct Listeners {
  base::Fd tcp;
  base::Fd local;                 // AF_UNIX, for peers on this host
  std::string local_name;         // abstract and unguessable
  net::SocketAddress advertised;  // empty: the rendezvous finds out where it was reached
};

/// Makes one attempt to connect, from options.interface where one is set. `scope` is the interface index for IPv6 link-local addresses
/// without one: by which interface they are reached is this end's to say.
[[nodiscard]] absl::StatusOr<base::Fd> open_connection(const ConnectOptions& options, net::SocketAddress address, std::uint32_t scope,
                                                       base::TimePoint deadline);

class Linker {
 public:
  /// `seat` is the connection to the rendezvous host: whatever comes there before all links stand means that the forming failed elsewhere.
  /// All references must outlive this object.
  Linker(const ConnectOptions& options, const RingTable& table, const Listeners& listeners, int seat, std::uint32_t scope,
         base::TimePoint deadline);

  /// Connects and accepts at the same time, until the deadline. kCancelled: rank 0 has the reason, at `seat`.
  [[nodiscard]] absl::StatusOr<Connections> link();

 private:
  /// One socket that is to be made, by connecting or by accepting.
  struct Slot {
    net::Greeting greeting;
    const PlannedLink* plan = nullptr;
    base::Fd* fd = nullptr;
  };

  [[nodiscard]] const Worker& worker(int rank) const { return table_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] net::Credentials credentials() const { return {.secret = options_.secret, .context = "link of " + options_.job_id}; }
  [[nodiscard]] net::Greeting greeting_of(const PlannedLink& plan, Lane lane) const;
  [[nodiscard]] absl::Status connect_all(std::span<const Slot> slots);
  [[nodiscard]] absl::StatusOr<base::Fd> connect_one(const Slot& slot, const Worker& peer);
  [[nodiscard]] absl::Status accept_all(std::span<const Slot> slots, int stop);
  void describe(Link& link) const;

  const ConnectOptions& options_;
  const RingTable& table_;
  const Listeners& listeners_;
  const int seat_;
  const std::uint32_t scope_;
  const base::TimePoint deadline_;
  const std::vector<PlannedLink> plan_;
  bool refused_ = false;  // whether the last attempt to connect found nobody listening
};

}  // namespace maypole::comm
