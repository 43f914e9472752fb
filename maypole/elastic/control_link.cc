// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/control_link.h"

#include "maypole/base/status.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

namespace maypole::elastic {

namespace {
absl::Status gone() { return base::error(absl::StatusCode::kUnavailable, "the launcher of this run is gone"); }
}  // namespace

ControlLink::ControlLink(base::Fd socket, base::Nanoseconds silence)
    : socket_(std::move(socket)),
      beat_(std::max<base::Nanoseconds>(silence / 4, std::chrono::milliseconds(1))),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { listen(); }) {}

ControlLink::~ControlLink() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof one);
}

absl::Status ControlLink::send(const WorkerReport& report) {
  const std::vector<std::byte> packet = encode(report);
  while (::send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) {
    if (errno == EAGAIN) {  // the agent reads little by little while its own reader is slow
      pollfd polled{socket_.get(), POLLOUT, 0};
      ::poll(&polled, 1, 100);
    } else if (errno != EINTR) {
      return gone();
    }
  }
  return absl::OkStatus();
}

void ControlLink::hear(std::span<const std::byte> packet) {
  absl::StatusOr<Order> order = decode_order(packet);
  base::MutexLock lock(mutex_);
  if (order.ok()) {
    orders_.push_back(std::move(order).value());
  } else {
    status_.Update(order.status());
  }
  changed_.notify_all();
}

void ControlLink::listen() {
  std::vector<std::byte> packet(kMaxPacketBytes);
  while (true) {
    std::array<pollfd, 2> polled = {{{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(beat_).count();
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(limit));
    if (polled[1].revents != 0) {
      return;
    }
    if (ready == 0) {
      const std::vector<std::byte> alive = encode(WorkerReport{});
      // One that finds no room is not missed: what fills the socket is a sign of life itself.
      [[maybe_unused]] const ssize_t ignored = ::send(socket_.get(), alive.data(), alive.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (polled[0].revents == 0) {
      continue;
    }
    const ssize_t got = ::recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (got > 0) {
      hear(std::span(packet).first(static_cast<std::size_t>(got)));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      base::MutexLock lock(mutex_);
      status_.Update(gone());
      changed_.notify_all();
      return;
    }
  }
}

std::optional<Order> ControlLink::take() {
  base::MutexLock lock(mutex_);
  if (orders_.empty()) {
    return std::nullopt;
  }
  Order order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

absl::StatusOr<std::optional<Order>> ControlLink::wait(base::Nanoseconds limit) {
  const base::TimePoint deadline = std::chrono::steady_clock::now() + limit;
  base::MutexLock lock(mutex_);
  while (orders_.empty()) {
    MAYPOLE_RETURN_IF_ERROR(status_);
    if (!changed_.wait_until(mutex_, deadline) && orders_.empty()) {
      return std::optional<Order>();
    }
  }
  std::optional<Order> order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

}  // namespace maypole::elastic
