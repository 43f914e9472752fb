// SPDX-License-Identifier: Apache-2.0
#pragma once

// The meeting at rank 0. One thread of rank 0 hosts it; every worker has a seat, which is a proven connection (rank 0's own is a
// socket pair, so that it is treated like all others). The host gathers one Worker from each seat, checks that they agree, sends
// the table to all, then waits until each has linked and tells all that the ring is formed. So either all ranks form the ring, or
// all get the same error; a seat that closes early, a deadline that passes and a disagreement all end it for everyone at once
// (who has not come by then is told so for two seconds more).
// Strangers (no proof, wrong secret, another job, another epoch) are turned away and disturb nobody.

#include "maypole/comm/connections.h"
#include "maypole/comm/ring_table.h"
#include "maypole/net/proof.h"

#include <absl/status/statusor.h>

#include <string>
#include <thread>
#include <vector>

namespace maypole::comm {

/// What a connection is for, in net::Greeting::purpose.
enum class Purpose : std::uint8_t { kRendezvous = 1, kRing = 2, kExchange = 3 };

class RendezvousHost {
 public:
  /// Starts the thread. `listener` must stay open until this object is gone; `where` is its address for people.
  RendezvousHost(const ConnectOptions& options, int listener, std::string where, base::Fd own_seat, base::TimePoint deadline);
  /// Ends as soon as rank 0's seat is closed or the forming is over.
  ~RendezvousHost() = default;
  RendezvousHost(const RendezvousHost&) = delete;
  RendezvousHost& operator=(const RendezvousHost&) = delete;

 private:
  struct Seat {
    base::Fd fd;
    std::string peer;  // for people
    bool linked = false;
  };

  void host();
  [[nodiscard]] absl::Status gather(net::ProvingAcceptor& acceptor);
  void tell_late_comers(net::ProvingAcceptor& acceptor, const absl::Status& status);
  [[nodiscard]] absl::Status seat_guest(base::Fd fd, std::string peer, std::span<const std::byte> message, const net::Greeting* greeting);
  [[nodiscard]] absl::Status await_links();
  [[nodiscard]] absl::Status receive_report(int rank);
  [[nodiscard]] absl::Status missing_error(const net::ProvingAcceptor& acceptor) const;
  void tell_all(const RendezvousMessage& message);
  [[nodiscard]] int num_seated() const;
  [[nodiscard]] std::string rank_name(int rank) const;

  const ConnectOptions options_;
  const int listener_;
  const std::string where_;
  base::TimePoint deadline_;         // for coming here: the earliest of all workers', less the time to tell them
  base::TimePoint report_deadline_;  // for linking: the same, and the time to be told
  std::vector<Seat> seats_;          // [rank]; no fd: not here yet
  RingTable table_;                  // [rank]
  int num_met_ = 0;                  // workers of this ring that have come, also those that were the reason to end it
  std::string reached_at_;           // this host's address as guests see it
  std::jthread thread_;              // last: the members above outlive it
};

}  // namespace maypole::comm
