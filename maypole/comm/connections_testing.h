// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rings of threads, for tests.

#include "maypole/base/status.h"
#include "maypole/comm/connections.h"
#include "maypole/net/socket.h"

#include <string>
#include <thread>
#include <vector>

namespace maypole::comm {

inline base::TimePoint later() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

/// A listener on a port of the kernel's choice, as a launcher would hand it to rank 0.
inline base::Fd listen_on(const std::string& host) { return *net::listen_tcp(*net::SocketAddress::parse(host, 0)); }

inline ConnectOptions options_for(const base::Fd& listener, int rank, int num_ranks) {
  ConnectOptions options;
  options.rank = rank;
  options.num_ranks = num_ranks;
  options.job_id = "digits";
  options.secret = "a secret";
  options.rendezvous = net::local_address_of(listener.get()).to_string();
  options.rendezvous_listener = rank == 0 ? listener.get() : -1;
  options.deadline = std::chrono::seconds(30);
  return options;
}

/// Forms a ring with one thread a rank; the threads end before this returns.
inline std::vector<absl::StatusOr<Connections>> form(const std::vector<ConnectOptions>& all) {
  std::vector<absl::StatusOr<Connections>> results(all.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = connect_ring(all[i]); });
  }
  threads.clear();
  return results;
}

inline std::vector<ConnectOptions> ring_options(const base::Fd& listener, int num_ranks) {
  std::vector<ConnectOptions> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    all.push_back(options_for(listener, rank, num_ranks));
  }
  return all;
}

}  // namespace maypole::comm
