// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/status.h"
#include "maypole/comm/ring_communicator.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <thread>
#include <utility>

namespace maypole::comm {

namespace {

absl::StatusOr<std::pair<base::Fd, base::Fd>> socket_pair() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0) {
    return base::errno_error(errno, "cannot make a socket pair");
  }
  return std::pair{base::Fd(fds[0]), base::Fd(fds[1])};
}

/// Both ends of a link with the given lanes; a shared-memory link has a control socket only.
absl::Status connect(Link& a, Link& b, bool shared_memory, std::vector<Lane> lanes) {
  a.shared_memory = b.shared_memory = shared_memory;
  a.local_address = b.local_address = a.remote_address = b.remote_address = "in this process";
  if (shared_memory) {
    lanes = {Lane::kControl};
  }
  for (const Lane lane : lanes) {
    MAYPOLE_ASSIGN_OR_RETURN(auto pair, socket_pair());
    a.sockets[static_cast<std::size_t>(lane)] = std::move(pair.first);
    b.sockets[static_cast<std::size_t>(lane)] = std::move(pair.second);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Connections>> make_inproc_connections(int num_ranks, InprocKind kind, base::Bandwidth edge_bandwidth) {
  const auto shares = [&](int edge) { return kind == InprocKind::kSharedMemory || (kind == InprocKind::kMixed && edge % 2 == 0); };
  std::vector<Connections> ends(static_cast<std::size_t>(num_ranks));
  model::Ring ring{"inproc", 1, {}, {}};
  for (int r = 0; r < num_ranks; ++r) {
    ring.members.push_back({"here", "", 0, "here"});
    if (edge_bandwidth.limited()) {
      ring.edge_bandwidth.push_back(edge_bandwidth);
    }
  }
  for (Connections& end : ends) {
    end.ring = ring;
  }
  if (num_ranks == 1) {
    return ends;
  }
  for (int r = 0; r < num_ranks; ++r) {
    const int next = (r + 1) % num_ranks;
    Link forward;
    Link backward;
    forward.peer = next;
    backward.peer = r;
    MAYPOLE_RETURN_IF_ERROR(connect(forward, backward, shares(r), {Lane::kReduceScatter, Lane::kAllGather, Lane::kUser, Lane::kControl}));
    ends[static_cast<std::size_t>(r)].next.push_back(std::move(forward));
    ends[static_cast<std::size_t>(next)].previous.push_back(std::move(backward));
  }
  const int q = static_cast<int>(std::bit_floor(static_cast<unsigned>(num_ranks)));
  for (int k = 0; (1 << k) <= q; ++k) {
    for (int r = 0; r < num_ranks; ++r) {
      const int peer = r ^ (1 << k);
      if (r > peer || peer >= num_ranks || ((1 << k) < q && r >= q)) {
        continue;
      }
      Link low;
      Link high;
      low.peer = peer;
      high.peer = r;
      low.exchange = high.exchange = k;
      MAYPOLE_RETURN_IF_ERROR(connect(low, high, shares(r), {Lane::kUser}));
      ends[static_cast<std::size_t>(r)].exchange.push_back(std::move(low));
      ends[static_cast<std::size_t>(peer)].exchange.push_back(std::move(high));
    }
  }
  return ends;
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> make_inproc_ring(int num_ranks, InprocKind kind, const ProgressOptions& progress,
                                                                            base::Bandwidth edge_bandwidth) {
  MAYPOLE_ASSIGN_OR_RETURN(std::vector<Connections> ends, make_inproc_connections(num_ranks, kind, edge_bandwidth));
  std::vector<std::unique_ptr<Communicator>> ring(ends.size());
  std::vector<absl::Status> outcome(ends.size());
  {
    std::vector<std::jthread> starters;  // shared-memory ends wait for each other
    for (std::size_t r = 0; r < ends.size(); ++r) {
      starters.emplace_back([&, r] {
        auto made = communicator_over(static_cast<int>(r), std::move(ends[r]), progress);
        outcome[r] = made.status();
        if (made.ok()) {
          ring[r] = *std::move(made);
        }
      });
    }
  }
  for (const absl::Status& status : outcome) {
    MAYPOLE_RETURN_IF_ERROR(status);
  }
  return ring;
}

}  // namespace maypole::comm
