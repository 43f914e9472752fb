// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/head_links.h"

#include "maypole/net/socket.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace maypole::daemon {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kQuickTries = 100;
constexpr std::chrono::milliseconds kQuickly{20};
constexpr std::chrono::milliseconds kSlowly{1000};

}  // namespace

std::string HeadLinks::socket_of(EpochId id) const {
  return fmt::format("maypole-head-{}-{}-{}-{}", ::getuid(), identity_, id.job, id.epoch);
}

void HeadLinks::watch(EpochId id) { links_[id]; }

void HeadLinks::order(EpochId id, HeadOrder order) {
  const auto found = links_.find(id);
  if (found == links_.end()) {
    return;
  }
  Link& link = found->second;
  link.order = std::move(order);
  if (link.stream && !link.stream->send(encode(*link.order))) {
    link.stream.reset();
  }
}

void HeadLinks::connect(EpochId id, Link& link) {
  const base::TimePoint now = Clock::now();
  if (link.stream || now < link.next_try) {
    return;
  }
  absl::StatusOr<base::Fd> socket = net::connect_local(socket_of(id), now);
  if (socket.ok() && is_own_user(socket->get())) {
    link.stream.emplace(*std::move(socket));
    link.tries = 0;
    if (link.order && !link.stream->send(encode(*link.order))) {
      link.stream.reset();
    }
  }
  link.next_try = now + (++link.tries < kQuickTries ? kQuickly : kSlowly);
}

std::vector<WorkerEvent> HeadLinks::poll() {
  std::vector<WorkerEvent> events;
  for (auto& [id, link] : links_) {
    connect(id, link);
    if (!link.stream) {
      continue;
    }
    for (const std::string& message : link.stream->receive()) {
      absl::StatusOr<HeadState> state = decode_head_state(message);
      if (state.ok()) {
        events.push_back({.kind = WorkerEventKind::kState, .id = id, .exit = {}, .state = *std::move(state)});
      }
    }
    if (!link.stream->valid()) {
      link.stream.reset();
    }
  }
  return events;
}

void HeadLinks::add_to(std::vector<pollfd>& polled) const {
  for (const auto& [id, link] : links_) {
    if (link.stream) {
      polled.push_back({link.stream->fd(), POLLIN, 0});
    }
  }
}

int HeadLinks::poll_again_ms() const {
  int wait = -1;
  for (const auto& [id, link] : links_) {
    if (!link.stream) {
      const int due = std::max(1, net::poll_timeout(link.next_try));
      wait = wait < 0 ? due : std::min(wait, due);
    }
  }
  return wait;
}

}  // namespace maypole::daemon
