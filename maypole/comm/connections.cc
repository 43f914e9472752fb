// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/connections.h"

#include "maypole/base/status.h"
#include "maypole/comm/linker.h"
#include "maypole/comm/rendezvous.h"
#include "maypole/comm/ring_table.h"
#include "maypole/net/machine.h"
#include "maypole/net/message.h"
#include "maypole/net/proof.h"
#include "maypole/net/socket.h"

#include <poll.h>

#include <algorithm>

namespace maypole::comm {

namespace {

using base::TimePoint;
using net::SocketAddress;

TimePoint now() { return std::chrono::steady_clock::now(); }

absl::Status check_options(const ConnectOptions& options) {
  if (options.num_ranks < 1 || options.rank < 0 || options.rank >= options.num_ranks) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "rank {} of {} is not possible: ranks count from 0 to one less than their number", options.rank, options.num_ranks);
  }
  constexpr std::size_t kLongest = 512;
  if (options.job_id.size() > kLongest || options.host.size() > kLongest) {
    return base::error(absl::StatusCode::kInvalidArgument, "job id and host entry may have at most {} bytes, not {} and {}", kLongest,
                       options.job_id.size(), options.host.size());
  }
  if (options.deadline <= base::Nanoseconds::zero()) {
    return base::error(absl::StatusCode::kInvalidArgument, "the deadline for forming the ring must be above zero");
  }
  return absl::OkStatus();
}

/// Without a secret anyone who reaches a port could join, so only this machine may reach it.
absl::Status check_secret(const ConnectOptions& options, const SocketAddress& address) {
  if (options.secret.empty() && !address.is_loopback()) {
    return base::error(
        absl::StatusCode::kInvalidArgument,
        "the ring has no secret, which is allowed only on loopback, not on {}: set MAYPOLE_SECRET to the same random text on all workers",
        address.host());
  }
  return absl::OkStatus();
}

// --- rank 0's listener ---

absl::StatusOr<base::Fd> bind_rendezvous(const ConnectOptions& options, TimePoint deadline) {
  MAYPOLE_ASSIGN_OR_RETURN(const net::HostPort target, net::parse_host_port(options.rendezvous));
  if (target.port == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "the rendezvous '{}' needs a port that the other ranks can be told",
                       options.rendezvous);
  }
  if (auto numeric = SocketAddress::parse(target.host, target.port); numeric.ok()) {
    return net::listen_tcp(*numeric);
  }
  // A name may mean another address to other machines than to this one, so listen on all, unless it can only mean this machine.
  if (target.host == "localhost" || options.secret.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, net::resolve(target, deadline));
    return net::listen_tcp(addresses.front());
  }
  return net::listen_tcp_everywhere(target.port);
}

// --- the way to rank 0 ---

bool may_pass(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kDeadlineExceeded;
}

/// Tries all addresses of the rendezvous again and again until rank 0 answers there.
absl::StatusOr<base::Fd> reach_rendezvous(const ConnectOptions& options, TimePoint deadline) {
  constexpr base::Nanoseconds kOneTry = std::chrono::seconds(5);
  constexpr base::Nanoseconds kNameServerPatience = std::chrono::seconds(10);
  MAYPOLE_ASSIGN_OR_RETURN(const net::HostPort target, net::parse_host_port(options.rendezvous));
  if (target.port == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "the rendezvous '{}' needs rank 0's port", options.rendezvous);
  }
  const net::Credentials credentials{.secret = options.secret, .context = "rendezvous"};
  const net::Greeting greeting{.purpose = static_cast<std::uint8_t>(Purpose::kRendezvous),
                               .epoch = options.epoch,
                               .from = static_cast<std::uint32_t>(options.rank),
                               .to = 0};
  const TimePoint begin = now();
  absl::Status last;
  std::string_view hint;
  int pause_ms = 10;
  while (true) {
    auto addresses = net::resolve(target, std::min(deadline, begin + kNameServerPatience));
    if (!addresses.ok() && (!may_pass(addresses.status()) || now() - begin > kNameServerPatience)) {
      return base::error(addresses.status().code(), "rank {} cannot find rank 0: {}", options.rank, base::message(addresses.status()));
    }
    last = addresses.status();
    for (const SocketAddress& address : addresses.ok() ? *addresses : std::vector<SocketAddress>{}) {
      MAYPOLE_RETURN_IF_ERROR(check_secret(options, address));
      if (address.is_loopback()) {
        hint = "; this is a loopback address: if rank 0 runs on another machine, give that machine's address";
      }
      // The proof may take longer than a try: rank 0 answers when it has come to its rendezvous, and the kernel connects before.
      auto fd = open_connection(options, address, 0, std::min(deadline, now() + kOneTry));
      last = fd.status();
      if (last.code() == absl::StatusCode::kInvalidArgument) {
        return last;
      }
      if (fd.ok()) {
        last = net::prove_as_initiator(fd->get(), credentials, greeting, deadline, fmt::format("rank 0 at {}", address.to_string()));
        if (last.ok()) {
          return fd;
        }
        if (!may_pass(last)) {
          return base::error(last.code(), "rank {} was not let in: {}", options.rank, base::message(last));
        }
      }
    }
    if (now() >= deadline) {
      return base::error(
          absl::StatusCode::kDeadlineExceeded,
          "rank {} did not reach rank 0 at {} within {} ({}): check that rank 0 runs and that this address and port are open{}",
          options.rank, options.rendezvous, base::format_seconds(base::to_seconds(options.deadline)), base::message(last), hint);
    }
    ::poll(nullptr, 0, std::min(pause_ms, net::poll_timeout(deadline)));  // nobody can tell us when a listener comes up
    pause_ms = std::min(pause_ms * 2, 250);
  }
}

// --- this rank's listeners ---

absl::StatusOr<SocketAddress> interface_of_any_family(const std::string& interface, const SocketAddress& hint) {
  if (hint.valid() && !hint.is_wildcard()) {
    return net::interface_address(interface, hint.family());
  }
  auto v4 = net::interface_address(interface, AF_INET);
  return v4.ok() ? v4 : net::interface_address(interface, AF_INET6);
}

/// `seen_at`: the local end of the connection to rank 0, or on rank 0 the address that it listens on.
absl::StatusOr<Listeners> open_listeners(const ConnectOptions& options, const SocketAddress& seen_at) {
  Listeners listeners;
  if (!options.interface.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(listeners.advertised, interface_of_any_family(options.interface, seen_at));
  } else if (!seen_at.is_wildcard()) {
    listeners.advertised = seen_at;
  }
  if (listeners.advertised.valid()) {
    MAYPOLE_RETURN_IF_ERROR(check_secret(options, listeners.advertised));
    listeners.advertised.set_port(0);
    MAYPOLE_ASSIGN_OR_RETURN(listeners.tcp, net::listen_tcp(listeners.advertised));
  } else {
    MAYPOLE_ASSIGN_OR_RETURN(listeners.tcp, net::listen_tcp_everywhere(0));
  }
  listeners.local_name = "maypole-" + net::random_hex(16);
  MAYPOLE_ASSIGN_OR_RETURN(listeners.local, net::listen_local(listeners.local_name));
  return listeners;
}

absl::StatusOr<Worker> introduce(const ConnectOptions& options, const Listeners& listeners, TimePoint deadline) {
  Worker self;
  self.rank = options.rank;
  self.num_ranks = options.num_ranks;
  self.job = options.job_id;
  self.epoch = options.epoch;
  self.host_entry = options.host;
  self.host_name = net::host_name();
  MAYPOLE_ASSIGN_OR_RETURN(self.machine, net::machine_identity());
  self.address = listeners.advertised.valid() ? listeners.advertised.host_without_scope() : "";
  self.port = net::local_address_of(listeners.tcp.get()).port();
  self.local_name = listeners.local_name;
  self.transport = options.transport;
  self.edge_bandwidth = options.edge_bandwidth;
  self.patience = std::max(base::Nanoseconds::zero(), base::Nanoseconds(deadline - now()));
  return self;
}

// --- a worker at its seat ---

absl::StatusOr<RendezvousMessage> hear(int seat, TimePoint deadline, std::string_view what) {
  auto bytes = net::receive_message(seat, kTableMessageLimit, deadline, what);
  if (!bytes.ok()) {
    return base::error(bytes.status().code(), "{} while the ring was forming", base::message(bytes.status()));
  }
  return decode(*bytes);
}

absl::Status say(int seat, const RendezvousMessage& message, TimePoint deadline, std::string_view what) {
  // Also an error that comes at the deadline must still be said.
  return net::send_message(seat, encode(message), std::max(deadline, now() + std::chrono::seconds(1)), what);
}

absl::StatusOr<Connections> sit(const ConnectOptions& options, int seat, const SocketAddress& seen_at, TimePoint deadline) {
  using Kind = RendezvousMessage::Kind;
  const std::string what = fmt::format("rank 0 at {}", options.rendezvous);
  auto listeners = open_listeners(options, seen_at);
  auto self = listeners.ok() ? introduce(options, *listeners, deadline) : listeners.status();
  if (!self.ok()) {
    absl::Status named =
        base::error(self.status().code(), "rank {} on {}: {}", options.rank, net::host_name(), base::message(self.status()));
    (void)say(seat, {.kind = Kind::kError, .status = named, .workers = {}}, deadline, what);
    return named;
  }
  MAYPOLE_RETURN_IF_ERROR(say(seat, {.kind = Kind::kWorker, .status = {}, .workers = {*self}}, deadline, what));
  MAYPOLE_ASSIGN_OR_RETURN(const RendezvousMessage table, hear(seat, deadline, what));
  if (table.kind == Kind::kError) {
    return table.status;
  }
  if (table.kind != Kind::kTable || table.workers.size() != static_cast<std::size_t>(options.num_ranks)) {
    return base::error(absl::StatusCode::kInternal, "{} sent message {} with {} workers where the table of {} was due", what,
                       static_cast<int>(table.kind), table.workers.size(), options.num_ranks);
  }
  auto connections = Linker(options, table.workers, *listeners, seat, seen_at.scope(), deadline).link();
  const TimePoint verdict_deadline = std::max(deadline, now() + std::chrono::seconds(2));
  if (connections.ok()) {
    MAYPOLE_RETURN_IF_ERROR(say(seat, {.kind = Kind::kLinked, .status = {}, .workers = {}}, deadline, what));
  } else if (connections.status().code() != absl::StatusCode::kCancelled) {
    (void)say(seat, {.kind = Kind::kError, .status = connections.status(), .workers = {}}, deadline, what);
  }
  auto verdict = hear(seat, verdict_deadline, what);
  if (verdict.ok() && verdict->kind == Kind::kError) {
    return verdict->status;  // also where our own links failed: what rank 0 heard first is the cause, ours may be a consequence
  }
  if (!connections.ok() && connections.status().code() != absl::StatusCode::kCancelled) {
    return connections;
  }
  MAYPOLE_RETURN_IF_ERROR(verdict.status());
  return connections;
}

}  // namespace

absl::StatusOr<Connections> connect_ring(const ConnectOptions& options) {
  MAYPOLE_RETURN_IF_ERROR(check_options(options));
  const TimePoint deadline = now() + options.deadline;
  if (options.num_ranks == 1) {
    Connections alone;
    MAYPOLE_ASSIGN_OR_RETURN(const std::string machine, net::machine_identity());
    alone.ring = {
        .job = options.job_id,
        .epoch = options.epoch,
        .members = {{.host = options.host.empty() ? net::host_name() : options.host, .address = "", .port = 0, .machine = machine}},
        .edge_bandwidth = {}};
    return alone;
  }
  if (options.rank > 0) {
    MAYPOLE_ASSIGN_OR_RETURN(const base::Fd seat, reach_rendezvous(options, deadline));
    return sit(options, seat.get(), net::local_address_of(seat.get()), deadline);
  }
  base::Fd own_listener;
  int listener = options.rendezvous_listener;
  if (listener < 0) {
    MAYPOLE_ASSIGN_OR_RETURN(own_listener, bind_rendezvous(options, deadline));
    listener = own_listener.get();
  } else if (!net::is_listening(listener)) {
    return base::error(
        absl::StatusCode::kInvalidArgument,
        "descriptor {} is not a listening socket: MAYPOLE_RENDEZVOUS_FD must be inherited from the launcher; unset it to bind {}", listener,
        options.rendezvous);
  }
  MAYPOLE_RETURN_IF_ERROR(net::set_close_on_exec(listener));
  const SocketAddress listening = net::local_address_of(listener);
  MAYPOLE_RETURN_IF_ERROR(check_secret(options, listening));
  MAYPOLE_ASSIGN_OR_RETURN(net::SocketPair seats, net::make_socket_pair());
  const std::string where = options.rendezvous.empty() ? listening.to_string() : options.rendezvous;
  // Destroyed in reverse: rank 0's seat closes first, which ends the host's thread, then the listener.
  const RendezvousHost host(options, listener, where, std::move(seats.second), deadline);
  const base::Fd seat = std::move(seats.first);
  return sit(options, seat.get(), listening, deadline);
}

}  // namespace maypole::comm
