// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/linker.h"

#include "maypole/base/status.h"
#include "maypole/comm/rendezvous.h"
#include "maypole/net/machine.h"
#include "maypole/net/socket.h"

#include <algorithm>
#include <optional>
#include <thread>

namespace maypole::comm {

namespace {

using net::SocketAddress;

base::TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

absl::StatusOr<base::Fd> open_connection(const ConnectOptions& options, SocketAddress address, std::uint32_t scope,
                                         base::TimePoint deadline) {
  std::optional<SocketAddress> source;
  if (!options.interface.empty() && !address.is_loopback()) {
    MAYPOLE_ASSIGN_OR_RETURN(source, net::interface_address(options.interface, address.family()));
    scope = source->scope();
  }
  if (scope != 0) {
    address.set_scope(scope);
  }
  return net::connect_tcp(address, source, deadline);
}

Linker::Linker(const ConnectOptions& options, const RingTable& table, const Listeners& listeners, int seat, std::uint32_t scope,
               base::TimePoint deadline)
    : options_(options),
      table_(table),
      listeners_(listeners),
      seat_(seat),
      scope_(scope),
      deadline_(deadline),
      plan_(plan_links(table, options.rank)) {}

absl::StatusOr<Connections> Linker::link() {
  Connections connections;
  connections.ring = ring_of(table_);
  std::vector<Link> links(plan_.size());
  std::vector<Slot> outgoing;
  std::vector<Slot> incoming;
  for (std::size_t i = 0; i < plan_.size(); ++i) {
    links[i].peer = plan_[i].peer;
    links[i].shared_memory = plan_[i].shared_memory;
    links[i].exchange = plan_[i].kind == LinkKind::kExchange ? plan_[i].level : -1;
    for (const Lane lane : plan_[i].lanes()) {
      auto& slots = plan_[i].initiates ? outgoing : incoming;
      slots.push_back(
          {.greeting = greeting_of(plan_[i], lane), .plan = &plan_[i], .fd = &links[i].sockets[static_cast<std::size_t>(lane)]});
    }
  }
  // Both at once: everyone connects and accepts, so doing one after the other could wait in a circle.
  MAYPOLE_ASSIGN_OR_RETURN(net::SocketPair stop, net::make_socket_pair());
  absl::Status accepted;
  std::jthread acceptor([&] { accepted = accept_all(incoming, stop.second.get()); });
  const absl::Status connected = connect_all(outgoing);
  if (!connected.ok()) {
    stop.first.reset();
  }
  acceptor.join();
  MAYPOLE_RETURN_IF_ERROR(connected);
  MAYPOLE_RETURN_IF_ERROR(accepted);
  for (std::size_t i = 0; i < plan_.size(); ++i) {
    describe(links[i]);
    switch (plan_[i].kind) {
      case LinkKind::kNext:
        connections.next.push_back(std::move(links[i]));
        break;
      case LinkKind::kPrevious:
        connections.previous.push_back(std::move(links[i]));
        break;
      case LinkKind::kExchange:
        connections.exchange.push_back(std::move(links[i]));
        break;
    }
  }
  return connections;
}

net::Greeting Linker::greeting_of(const PlannedLink& plan, Lane lane) const {
  const auto self = static_cast<std::uint32_t>(options_.rank);
  const auto peer = static_cast<std::uint32_t>(plan.peer);
  return {.purpose = static_cast<std::uint8_t>(plan.kind == LinkKind::kExchange ? Purpose::kExchange : Purpose::kRing),
          .lane = static_cast<std::uint8_t>(lane),
          .level = static_cast<std::uint8_t>(plan.level),
          .epoch = options_.epoch,
          .from = plan.initiates ? self : peer,
          .to = plan.initiates ? peer : self};
}

absl::Status Linker::connect_all(std::span<const Slot> slots) {
  for (const Slot& slot : slots) {
    const Worker& peer = worker(slot.plan->peer);
    auto fd = connect_one(slot, peer);
    // A peer that accepts many at once may drop an unproven one; one that is gone refuses the next try.
    while (!fd.ok() && fd.status().code() == absl::StatusCode::kUnavailable && !refused_ && now() < deadline_) {
      fd = connect_one(slot, peer);
    }
    if (!fd.ok()) {
      return base::error(fd.status().code(),
                         "rank {} ({}) cannot connect to rank {} ({}) at {}: {}; check that this address and port are open, or choose the "
                         "network with --interface (MAYPOLE_INTERFACE)",
                         options_.rank, worker(options_.rank).host(), peer.rank, peer.host(),
                         net::format_host_port(peer.address, peer.port), base::message(fd.status()));
    }
    *slot.fd = *std::move(fd);
  }
  return absl::OkStatus();
}

absl::StatusOr<base::Fd> Linker::connect_one(const Slot& slot, const Worker& peer) {
  refused_ = true;  // until a connection stands
  const std::string what = fmt::format("rank {}", peer.rank);
  absl::StatusOr<base::Fd> fd = base::Fd();
  if (slot.plan->shared_memory) {
    fd = net::connect_local(peer.local_name, deadline_);
  } else {
    MAYPOLE_ASSIGN_OR_RETURN(const SocketAddress address, SocketAddress::parse(peer.address, peer.port));
    fd = open_connection(options_, address, scope_, deadline_);
  }
  MAYPOLE_RETURN_IF_ERROR(fd.status());
  refused_ = false;
  MAYPOLE_RETURN_IF_ERROR(net::prove_as_initiator(fd->get(), credentials(), slot.greeting, deadline_, what));
  return fd;
}

absl::Status Linker::accept_all(std::span<const Slot> slots, int stop) {
  net::ProvingAcceptor acceptor({.listeners = {listeners_.tcp.get(), listeners_.local.get()}, .credentials = credentials()});
  const int watched[] = {stop, seat_};
  std::size_t num_missing = slots.size();
  while (num_missing > 0) {
    MAYPOLE_ASSIGN_OR_RETURN(net::ProvingAcceptor::Event event, acceptor.next(deadline_, watched));
    switch (event.kind) {
      case net::ProvingAcceptor::EventKind::kConnection: {
        const auto slot =
            std::ranges::find_if(slots, [&](const Slot& s) { return !s.fd->valid() && s.greeting == event.connection.greeting; });
        if (slot != slots.end()) {
          *slot->fd = std::move(event.connection.fd);
          --num_missing;
        }
        break;
      }
      case net::ProvingAcceptor::EventKind::kWatched:
        // Our own connecting failed, or rank 0 has heard that somebody else's did: it says what to report.
        return base::error(absl::StatusCode::kCancelled, "forming the ring was broken off");
      case net::ProvingAcceptor::EventKind::kDeadline: {
        const auto slot = std::ranges::find_if(slots, [](const Slot& s) { return !s.fd->valid(); });
        const Worker& peer = worker(slot->plan->peer);
        const Worker& self = worker(options_.rank);
        return base::error(absl::StatusCode::kDeadlineExceeded,
                           "rank {} ({}) did not connect to rank {} ({}) at {} in time: check that this address and port are open to {}",
                           peer.rank, peer.host(), self.rank, self.host(), net::format_host_port(self.address, self.port), peer.host());
      }
    }
  }
  return absl::OkStatus();
}

void Linker::describe(Link& link) const {
  if (link.shared_memory) {
    link.local_address = "@" + worker(options_.rank).local_name;
    link.remote_address = "@" + worker(link.peer).local_name;
    return;
  }
  const auto socket = std::ranges::find_if(link.sockets, [](const base::Fd& fd) { return fd.valid(); });
  link.local_address = net::local_address_of(socket->get()).to_string();
  link.remote_address = net::remote_address_of(socket->get()).to_string();
}

}  // namespace maypole::comm
