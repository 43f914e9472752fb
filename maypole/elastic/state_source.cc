// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/state_source.h"

#include "maypole/net/socket.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace maypole::elastic {

namespace {

/// Who asks and then takes nothing for so long is given up; a ring notices its end much earlier.
constexpr std::chrono::minutes kPatience{10};

base::TimePoint deadline() { return std::chrono::steady_clock::now() + kPatience; }

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace

StateSource::StateSource(Options options, StatePieces pieces)
    : options_(std::move(options)),
      pieces_(std::move(pieces)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { accept_guests(); }) {}

StateSource::~StateSource() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
  std::list<Guest> guests;
  {
    base::MutexLock lock(mutex_);
    guests.swap(guests_);
  }
  for (const Guest& guest : guests) {
    ::shutdown(guest.fd.get(), SHUT_RDWR);
  }
}

void StateSource::accept_guests() {
  net::ProvingAcceptor acceptor({.listeners = {options_.listener}, .credentials = options_.credentials});
  const int watched[] = {stop_.get()};
  while (true) {
    auto event = acceptor.next(deadline(), watched);
    if (!event.ok() || event->kind == net::ProvingAcceptor::EventKind::kWatched) {
      return;
    }
    if (event->kind != net::ProvingAcceptor::EventKind::kConnection || event->connection.greeting.purpose != kStatePurpose ||
        event->connection.greeting.epoch != options_.epoch) {
      continue;
    }
    base::MutexLock lock(mutex_);
    Guest& guest = guests_.emplace_back();
    guest.fd = std::move(event->connection.fd);
    guest.thread = std::jthread([this, fd = guest.fd.get()] { serve(fd); });
  }
}

void StateSource::serve(int fd) const {
  constexpr std::string_view kWho = "a newcomer";
  net::tune_tcp(fd);
  const PiecesOffer offer{pieces_.layout(), pieces_.size()};
  absl::Status status = net::send_all(fd, bytes_of(offer), deadline(), kWho);
  while (status.ok()) {
    PieceRequest request;
    status = net::receive_all(fd, std::as_writable_bytes(std::span(&request, 1)), deadline(), kWho);
    if (!status.ok() || request.index >= pieces_.size()) {
      return;  // it has all, or is gone
    }
    const std::span<const std::byte> piece = pieces_[request.index];
    const std::uint64_t digest = digest_of(piece);
    const bool same = digest == request.digest;
    const PieceAnswer answer{request.index, digest, same ? 0 : piece.size()};
    status = net::send_all(fd, bytes_of(answer), deadline(), kWho);
    if (status.ok() && !same) {
      status = net::send_all(fd, piece, deadline(), kWho);
    }
  }
}

}  // namespace maypole::elastic
