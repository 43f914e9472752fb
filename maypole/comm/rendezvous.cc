// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/rendezvous.h"

#include "maypole/base/status.h"
#include "maypole/net/message.h"
#include "maypole/net/socket.h"

#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>

namespace maypole::comm {

namespace {

/// For messages that fit into any socket buffer: a peer that cannot take one so long is gone.
constexpr base::Nanoseconds kSendLimit = std::chrono::seconds(2);

/// How long a forming that has failed still waits for ranks that have not come yet, to tell them why.
constexpr base::Nanoseconds kLateComerLimit = std::chrono::seconds(2);

/// A worker that reports at its own deadline which link is missing says more than this host could.
constexpr base::Nanoseconds kReportGrace = std::chrono::seconds(1);

base::TimePoint soon() { return std::chrono::steady_clock::now() + kSendLimit; }

RendezvousMessage error_message(absl::Status status) {
  return {.kind = RendezvousMessage::Kind::kError, .status = std::move(status), .workers = {}};
}

/// Leaves the host time to tell a worker what is missing before that worker gives up by itself.
base::Nanoseconds with_margin(base::Nanoseconds patience) {
  return patience - std::min<base::Nanoseconds>(patience / 10, std::chrono::seconds(1));
}

}  // namespace

RendezvousHost::RendezvousHost(const ConnectOptions& options, int listener, std::string where, base::Fd own_seat, base::TimePoint deadline)
    : options_(options),
      listener_(listener),
      where_(std::move(where)),
      deadline_(deadline),
      report_deadline_(deadline + kReportGrace),
      seats_(static_cast<std::size_t>(options.num_ranks)),
      table_(static_cast<std::size_t>(options.num_ranks)) {
  seats_[0].fd = std::move(own_seat);
  seats_[0].peer = "rank 0";
  thread_ = std::jthread([this] { host(); });
}

void RendezvousHost::host() {
  net::ProvingAcceptor acceptor({.listeners = {listener_},
                                 .credentials = {.secret = options_.secret, .context = "rendezvous"},
                                 .message_limit = kWorkerMessageLimit});
  const absl::Status gathered = gather(acceptor);
  absl::Status status = gathered.ok() ? check_table(table_) : gathered;
  if (status.ok()) {
    tell_all({.kind = RendezvousMessage::Kind::kTable, .status = {}, .workers = table_});
    status = await_links();
  }
  tell_all(status.ok() ? RendezvousMessage{.kind = RendezvousMessage::Kind::kFormed, .status = {}, .workers = {}} : error_message(status));
  if (!gathered.ok() && gathered.code() != absl::StatusCode::kDeadlineExceeded) {
    tell_late_comers(acceptor, gathered);
  }
}

void RendezvousHost::tell_late_comers(net::ProvingAcceptor& acceptor, const absl::Status& status) {
  const std::vector<std::byte> bytes = encode(error_message(status));
  const base::TimePoint end = std::min(deadline_, std::chrono::steady_clock::now() + kLateComerLimit);
  while (num_met_ < options_.num_ranks) {
    auto event = acceptor.next(end, {});
    if (!event.ok() || event->kind != net::ProvingAcceptor::EventKind::kConnection) {
      return;
    }
    (void)net::send_message(event->connection.fd.get(), bytes, soon(), event->connection.peer);
    ++num_met_;
  }
}

int RendezvousHost::num_seated() const {
  return static_cast<int>(std::ranges::count_if(table_, [](const Worker& worker) { return worker.num_ranks > 0; }));
}

std::string RendezvousHost::rank_name(int rank) const {
  const Worker& worker = table_[static_cast<std::size_t>(rank)];
  return fmt::format("rank {} ({}, {})", rank, worker.host(), seats_[static_cast<std::size_t>(rank)].peer);
}

absl::Status RendezvousHost::gather(net::ProvingAcceptor& acceptor) {
  // Rank 0 sits down first. It always does, or closes its seat.
  auto own = net::receive_message(seats_[0].fd.get(), kWorkerMessageLimit, deadline_, "rank 0");
  MAYPOLE_RETURN_IF_ERROR(own.status());
  MAYPOLE_RETURN_IF_ERROR(seat_guest(std::move(seats_[0].fd), "rank 0", *own, nullptr));

  while (num_seated() < options_.num_ranks) {
    std::vector<int> watched;
    std::vector<int> watched_ranks;
    for (int rank = 0; rank < options_.num_ranks; ++rank) {
      if (seats_[static_cast<std::size_t>(rank)].fd.valid()) {
        watched.push_back(seats_[static_cast<std::size_t>(rank)].fd.get());
        watched_ranks.push_back(rank);
      }
    }
    MAYPOLE_ASSIGN_OR_RETURN(net::ProvingAcceptor::Event event, acceptor.next(deadline_, watched));
    switch (event.kind) {
      case net::ProvingAcceptor::EventKind::kConnection: {
        auto& guest = event.connection;
        MAYPOLE_RETURN_IF_ERROR(seat_guest(std::move(guest.fd), std::move(guest.peer), guest.message, &guest.greeting));
        break;
      }
      case net::ProvingAcceptor::EventKind::kWatched:
        // Nothing is due from a seated worker before the table, so this is its end, or its own error.
        return receive_report(watched_ranks[event.watched]);
      case net::ProvingAcceptor::EventKind::kDeadline:
        return missing_error(acceptor);
    }
  }
  if (table_[0].address.empty()) {
    table_[0].address = reached_at_;
  }
  return absl::OkStatus();
}

absl::Status RendezvousHost::seat_guest(base::Fd fd, std::string peer, std::span<const std::byte> bytes, const net::Greeting* greeting) {
  auto message = decode(bytes);
  if (!message.ok()) {
    (void)net::send_message(fd.get(), encode(error_message(message.status())), soon(), peer);
    return absl::OkStatus();
  }
  if (message->kind == RendezvousMessage::Kind::kError && (greeting == nullptr || greeting->epoch == options_.epoch)) {
    ++num_met_;
    return message->status;
  }
  const bool one_worker = message->kind == RendezvousMessage::Kind::kWorker && message->workers.size() == 1;
  if (!one_worker || (greeting != nullptr && greeting->from != static_cast<std::uint32_t>(message->workers.front().rank))) {
    return absl::OkStatus();
  }
  Worker worker = std::move(message->workers.front());
  if (worker.job != options_.job_id || worker.epoch != options_.epoch) {
    // Another job's worker, or one left over from an earlier ring: not of this ring, so no reason to end it.
    const absl::Status refusal = base::error(absl::StatusCode::kFailedPrecondition,
                                             "rank {} belongs to job '{}' epoch {}, but the rendezvous at {} is of job '{}' epoch {}: "
                                             "check MAYPOLE_RENDEZVOUS and MAYPOLE_JOB_ID",
                                             worker.rank, worker.job, worker.epoch, where_, options_.job_id, options_.epoch);
    (void)net::send_message(fd.get(), encode(error_message(refusal)), soon(), peer);
    return absl::OkStatus();
  }
  ++num_met_;
  absl::Status fault;
  if (worker.num_ranks != options_.num_ranks) {
    fault = base::error(
        absl::StatusCode::kFailedPrecondition,
        "rank {} on {} was told that there are {} ranks, rank 0 that there are {}: start all workers with the same size (WORLD_SIZE)",
        worker.rank, worker.host(), worker.num_ranks, options_.num_ranks);
  } else if (table_[static_cast<std::size_t>(worker.rank)].num_ranks > 0) {
    fault = base::error(absl::StatusCode::kFailedPrecondition,
                        "rank {} came twice, from {} and from {} on {}: every worker needs a rank of its own (RANK)", worker.rank,
                        rank_name(worker.rank), peer, worker.host());
  }
  if (!fault.ok()) {
    (void)net::send_message(fd.get(), encode(error_message(fault)), soon(), peer);
    return fault;
  }
  const base::TimePoint arrival = std::chrono::steady_clock::now();
  deadline_ = std::min(deadline_, arrival + with_margin(worker.patience));
  report_deadline_ = std::min(report_deadline_, arrival + worker.patience + kReportGrace);
  if (const net::SocketAddress here = net::local_address_of(fd.get()); here.valid()) {
    const auto known = net::SocketAddress::parse(reached_at_, 0);
    if (!known.ok() || (known->is_loopback() && !here.is_loopback())) {
      reached_at_ = here.host_without_scope();
    }
  }
  Seat& seat = seats_[static_cast<std::size_t>(worker.rank)];
  seat.fd = std::move(fd);
  seat.peer = std::move(peer);
  table_[static_cast<std::size_t>(worker.rank)] = std::move(worker);
  return absl::OkStatus();
}

absl::Status RendezvousHost::missing_error(const net::ProvingAcceptor& acceptor) const {
  std::vector<int> missing;
  for (const Worker& worker : table_) {
    if (worker.num_ranks == 0) {
      missing.push_back(static_cast<int>(&worker - table_.data()));
    }
  }
  std::string text =
      fmt::format("{} {} of {} did not come to rank 0 at {} ({}) in time: check that {} started and can reach this address and port",
                  missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "), options_.num_ranks, where_, table_[0].host(),
                  missing.size() == 1 ? "it" : "they");
  if (acceptor.num_refused() > 0) {
    text +=
        fmt::format("; {} connections were refused for a wrong secret, the last from {}", acceptor.num_refused(), acceptor.last_refused());
  }
  const net::SocketAddress listening = net::local_address_of(listener_);
  if (listening.is_loopback()) {
    text += fmt::format("; rank 0 listens on {}, which only its own machine reaches", listening.host());
  }
  return base::error(absl::StatusCode::kDeadlineExceeded, "{}", text);
}

absl::Status RendezvousHost::receive_report(int rank) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  auto bytes = net::receive_message(seat.fd.get(), kWorkerMessageLimit, soon(), rank_name(rank));
  if (!bytes.ok()) {
    seat.fd.reset();
    return base::error(absl::StatusCode::kUnavailable, "{} left before the ring was formed; its own output says why", rank_name(rank));
  }
  MAYPOLE_ASSIGN_OR_RETURN(RendezvousMessage message, decode(*bytes));
  if (message.kind == RendezvousMessage::Kind::kError) {
    return message.status;
  }
  if (message.kind != RendezvousMessage::Kind::kLinked || table_[0].address.empty()) {
    return base::error(absl::StatusCode::kInternal, "{} sent message {} out of turn", rank_name(rank), static_cast<int>(message.kind));
  }
  seat.linked = true;
  return absl::OkStatus();
}

absl::Status RendezvousHost::await_links() {
  while (true) {
    std::vector<pollfd> entries;
    std::vector<int> ranks;
    for (int rank = 0; rank < options_.num_ranks; ++rank) {
      const Seat& seat = seats_[static_cast<std::size_t>(rank)];
      if (!seat.linked) {
        ranks.push_back(rank);
        entries.push_back({seat.fd.get(), POLLIN, 0});
      }
    }
    if (entries.empty()) {
      return absl::OkStatus();
    }
    const int ready = ::poll(entries.data(), entries.size(), net::poll_timeout(report_deadline_));
    if (ready == 0 && net::poll_timeout(report_deadline_) == 0) {
      return base::error(
          absl::StatusCode::kDeadlineExceeded,
          "{} {} came to the rendezvous but did not connect the ring in time: check that workers reach each other's addresses",
          ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
    }
    for (std::size_t i = 0; ready > 0 && i < entries.size(); ++i) {
      if (entries[i].revents != 0) {
        MAYPOLE_RETURN_IF_ERROR(receive_report(ranks[i]));
      }
    }
  }
}

void RendezvousHost::tell_all(const RendezvousMessage& message) {
  const std::vector<std::byte> bytes = encode(message);
  for (const Seat& seat : seats_) {
    if (seat.fd.valid()) {
      // Who cannot be told has gone, which await_links notices, or gives up at its own deadline.
      (void)net::send_message(seat.fd.get(), bytes, soon(), seat.peer);
    }
  }
}

}  // namespace maypole::comm
