// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/ring_table.h"

#include "maypole/base/status.h"
#include "maypole/net/address.h"
#include "maypole/net/message.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace maypole::comm {

namespace {

std::string_view name_of(TransportChoice choice) {
  switch (choice) {
    case TransportChoice::kAuto:
      return "auto";
    case TransportChoice::kShm:
      return "shm";
    case TransportChoice::kTcp:
      return "tcp";
  }
  return "?";
}

void put_worker(net::MessageWriter& writer, const Worker& worker) {
  writer.put_u32(static_cast<std::uint32_t>(worker.rank));
  writer.put_u32(static_cast<std::uint32_t>(worker.num_ranks));
  writer.put_string(worker.job);
  writer.put_u32(worker.epoch);
  writer.put_string(worker.host_entry);
  writer.put_string(worker.host_name);
  writer.put_string(worker.machine);
  writer.put_string(worker.address);
  writer.put_u16(worker.port);
  writer.put_string(worker.local_name);
  writer.put_u8(static_cast<std::uint8_t>(worker.transport));
  writer.put_f64(worker.edge_bandwidth.bytes_per_second);
  writer.put_u64(static_cast<std::uint64_t>(worker.patience.count()));
}

Worker take_worker(net::MessageReader& reader) {
  Worker worker;
  worker.rank = static_cast<int>(reader.u32());
  worker.num_ranks = static_cast<int>(reader.u32());
  worker.job = reader.string();
  worker.epoch = reader.u32();
  worker.host_entry = reader.string();
  worker.host_name = reader.string();
  worker.machine = reader.string();
  worker.address = reader.string();
  worker.port = reader.u16();
  worker.local_name = reader.string();
  worker.transport = static_cast<TransportChoice>(reader.u8());
  worker.edge_bandwidth.bytes_per_second = reader.f64();
  worker.patience = base::Nanoseconds(static_cast<std::int64_t>(reader.u64()));
  return worker;
}

bool is_sound(const Worker& worker) {
  const double rate = worker.edge_bandwidth.bytes_per_second;
  return worker.rank >= 0 && worker.num_ranks > worker.rank && worker.transport <= TransportChoice::kTcp && std::isfinite(rate) &&
         rate >= 0 && worker.patience.count() >= 0;
}

bool can_share_memory(const Worker& a, const Worker& b) {
  const bool same_entry = a.host_entry.empty() || b.host_entry.empty() || a.host_entry == b.host_entry;
  switch (a.transport) {
    case TransportChoice::kAuto:
      return a.machine == b.machine && same_entry;
    case TransportChoice::kShm:
      return true;  // check_table has made sure that it is possible
    case TransportChoice::kTcp:
      return false;
  }
  return false;
}

}  // namespace

std::vector<std::byte> encode(const RendezvousMessage& message) {
  net::MessageWriter writer;
  writer.put_u8(static_cast<std::uint8_t>(message.kind));
  writer.put_u32(static_cast<std::uint32_t>(message.status.code()));
  writer.put_string(base::message(message.status));
  writer.put_u32(static_cast<std::uint32_t>(message.workers.size()));
  for (const Worker& worker : message.workers) {
    put_worker(writer, worker);
  }
  return writer.bytes();
}

absl::StatusOr<RendezvousMessage> decode(std::span<const std::byte> bytes) {
  net::MessageReader reader(bytes);
  RendezvousMessage message;
  const std::uint8_t kind = reader.u8();
  const std::uint32_t code = reader.u32();
  const std::string text = reader.string();
  message.status = absl::Status(static_cast<absl::StatusCode>(code), absl::string_view(text.data(), text.size()));
  const std::uint32_t num_workers = reader.u32();
  for (std::uint32_t i = 0; i < num_workers && reader.ok(); ++i) {
    message.workers.push_back(take_worker(reader));
  }
  MAYPOLE_RETURN_IF_ERROR(reader.finish("a rendezvous message"));
  const bool kind_known = kind <= static_cast<std::uint8_t>(RendezvousMessage::Kind::kFormed);
  const bool code_fits = code <= static_cast<std::uint32_t>(absl::StatusCode::kUnauthenticated) && (code == 0) == (kind != 0);
  if (!kind_known || !code_fits || !std::ranges::all_of(message.workers, is_sound)) {
    return base::error(absl::StatusCode::kInvalidArgument, "a rendezvous message holds values that make no sense (kind {}, code {})", kind,
                       code);
  }
  message.kind = static_cast<RendezvousMessage::Kind>(kind);
  return message;
}

absl::Status check_table(const RingTable& table) {
  const Worker& first = table.front();
  for (const Worker& worker : table) {
    if (worker.transport != first.transport) {
      return base::error(absl::StatusCode::kFailedPrecondition,
                         "rank {} asks for transport {}, rank {} for {}: set MAYPOLE_TRANSPORT alike on all workers", first.rank,
                         name_of(first.transport), worker.rank, name_of(worker.transport));
    }
    if (worker.transport == TransportChoice::kShm && worker.machine != first.machine) {
      return base::error(absl::StatusCode::kInvalidArgument,
                         "transport shm needs all workers on one machine, but rank {} is on {} and rank {} on {}: use transport auto",
                         first.rank, first.host(), worker.rank, worker.host());
    }
    if (worker.transport == TransportChoice::kShm && worker.edge_bandwidth.limited()) {
      return base::error(
          absl::StatusCode::kInvalidArgument,
          "the edge of rank {} is paced to {}, which shared memory cannot be: leave out the bandwidth, or use transport auto or tcp",
          worker.rank, base::format_bandwidth(worker.edge_bandwidth));
    }
  }
  for (const Worker& worker : table) {
    const auto address = net::SocketAddress::parse(worker.address, worker.port);
    if (!address.ok()) {
      return base::error(absl::StatusCode::kInvalidArgument, "rank {} on {} gives '{}' as its address, which is not a numeric one",
                         worker.rank, worker.host(), worker.address);
    }
    const auto stranger = std::ranges::find_if(table, [&](const Worker& other) { return other.machine != worker.machine; });
    if (address->is_loopback() && stranger != table.end()) {
      return base::error(
          absl::StatusCode::kFailedPrecondition,
          "rank {} on {} would be reached at {}, a loopback address, but rank {} is on another machine ({}): the name of rank 0's host "
          "resolves to "
          "loopback on {}; give that host's address instead of its name, or choose the network with --interface (MAYPOLE_INTERFACE)",
          worker.rank, worker.host(), address->to_string(), stranger->rank, stranger->host(), worker.host());
    }
  }
  return absl::OkStatus();
}

std::vector<Lane> PlannedLink::lanes() const {
  if (shared_memory) {
    return {Lane::kControl};
  }
  if (kind == LinkKind::kExchange) {
    return {Lane::kUser};
  }
  return {Lane::kReduceScatter, Lane::kAllGather, Lane::kUser, Lane::kControl};
}

std::vector<PlannedLink> plan_links(const RingTable& table, int rank) {
  const int num_ranks = static_cast<int>(table.size());
  std::vector<PlannedLink> links;
  if (num_ranks < 2) {
    return links;
  }
  const auto at = [&](int r) -> const Worker& { return table[static_cast<std::size_t>(r)]; };
  const auto edge_shares = [&](int from, int to) { return can_share_memory(at(from), at(to)) && !at(from).edge_bandwidth.limited(); };
  const int next = (rank + 1) % num_ranks;
  const int previous = (rank + num_ranks - 1) % num_ranks;
  links.push_back({.kind = LinkKind::kNext, .level = 0, .peer = next, .shared_memory = edge_shares(rank, next), .initiates = true});
  links.push_back(
      {.kind = LinkKind::kPrevious, .level = 0, .peer = previous, .shared_memory = edge_shares(previous, rank), .initiates = false});
  const int exchanging = static_cast<int>(std::bit_floor(static_cast<unsigned>(num_ranks)));
  for (int level = 0; (1 << level) <= exchanging; ++level) {
    const int peer = rank ^ (1 << level);
    // Below the largest power of two all levels are used; a rank above it has one link, to its host below (all_reduce.h).
    const bool used = (1 << level) < exchanging ? rank < exchanging : peer < num_ranks;
    if (!used) {
      continue;
    }
    // An exchange link beside a paced edge would go around the reserved bandwidth if it were shared memory.
    links.push_back({.kind = LinkKind::kExchange,
                     .level = level,
                     .peer = peer,
                     .shared_memory = edge_shares(rank, peer) && edge_shares(peer, rank),
                     .initiates = rank < peer});
  }
  return links;
}

model::Ring ring_of(const RingTable& table) {
  model::Ring ring;
  ring.job = table.front().job;
  ring.epoch = table.front().epoch;
  for (const Worker& worker : table) {
    ring.members.push_back({.host = worker.host(), .address = worker.address, .port = worker.port, .machine = worker.machine});
  }
  if (std::ranges::any_of(table, [](const Worker& worker) { return worker.edge_bandwidth.limited(); })) {
    for (const Worker& worker : table) {
      ring.edge_bandwidth.push_back(worker.edge_bandwidth);
    }
  }
  return ring;
}

}  // namespace maypole::comm
