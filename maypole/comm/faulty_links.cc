// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/faulty_links.h"

#include "maypole/base/status.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace maypole::comm {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 1;                // resolution of delays
constexpr std::size_t kMostWaiting = 64;  // frames of one direction, before its sender has to wait

bool is_data(FrameKind kind) { return kind < FrameKind::kHeartbeat; }

}  // namespace

absl::StatusOr<std::unique_ptr<FaultyLinks>> FaultyLinks::put_between(std::vector<Connections>& ends, std::uint64_t seed,
                                                                      base::Nanoseconds longest_delay) {
  std::unique_ptr<FaultyLinks> links(new FaultyLinks(seed, longest_delay));
  std::size_t number = 0;
  for (std::size_t r = 0; r < ends.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (std::vector<Link>* list : {&ends[r].next, &ends[r].exchange}) {
      for (Link& link : *list) {
        if (link.exchange >= 0 && link.peer < rank) {
          continue;  // its other end has been dealt with
        }
        for (base::Fd& end : link.sockets) {
          if (end.valid()) {
            MAYPOLE_RETURN_IF_ERROR(links->take_over(end, rank, link.peer, number));
          }
        }
        ++number;
      }
    }
  }
  links->thread_ = std::jthread([owner = links.get()](const std::stop_token& stop) { owner->run(stop); });
  return links;
}

/// `rank` gets the end of another pair in place of `end`.
absl::Status FaultyLinks::take_over(base::Fd& end, int rank, int peer, std::size_t link) {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0) {
    return base::errno_error(errno, "cannot make a socket pair");
  }
  const int far = end.get();
  sockets_.push_back(std::exchange(end, base::Fd(fds[0])));
  sockets_.emplace_back(fds[1]);
  ways_.push_back({.from = fds[1], .to = far, .sender = rank, .receiver = peer, .link = link});
  ways_.push_back({.from = far, .to = fds[1], .sender = peer, .receiver = rank, .link = link});
  return absl::OkStatus();
}

void FaultyLinks::arm(const LinkFault& fault) {
  const base::MutexLock lock(mutex_);
  armed_ = fault;
  happened_ = false;
}

bool FaultyLinks::happened() const {
  const base::MutexLock lock(mutex_);
  return happened_;
}

void FaultyLinks::run(const std::stop_token& stop) {
  std::vector<pollfd> polled;
  while (!stop.stop_requested()) {
    polled.clear();
    for (const Way& way : ways_) {
      polled.push_back({reads(way) ? way.from : -1, POLLIN, 0});
    }
    (void)::poll(polled.data(), polled.size(), kPollMs);
    const base::TimePoint now = Clock::now();
    for (std::size_t w = 0; w < ways_.size(); ++w) {
      if (polled[w].revents != 0) {
        read(ways_[w], now);
      }
    }
    for (Way& way : ways_) {
      if (way.sender != frozen_ && way.receiver != frozen_) {
        write(way, now);
      }
    }
  }
}

bool FaultyLinks::reads(const Way& way) const {
  return !way.ended && !way.no_more && way.sender != frozen_ && way.receiver != frozen_ && way.waiting.size() < kMostWaiting;
}

void FaultyLinks::read(Way& way, base::TimePoint now) {
  while (reads(way)) {
    std::size_t whole = sizeof(FrameHeader);
    if (way.partial.size() >= whole) {
      FrameHeader header;
      std::memcpy(&header, way.partial.data(), sizeof header);
      whole += header.bytes;
    }
    if (way.partial.size() == whole) {
      frame_is_whole(way, now);
      continue;
    }
    const std::size_t had = way.partial.size();
    way.partial.resize(whole);
    const ssize_t got = ::recv(way.from, way.partial.data() + had, whole - had, 0);
    way.partial.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (got <= 0) {
      way.no_more = true;
    }
  }
}

void FaultyLinks::frame_is_whole(Way& way, base::TimePoint now) {
  FrameHeader header;
  std::memcpy(&header, way.partial.data(), sizeof header);
  const auto delay = std::uniform_int_distribution<std::int64_t>(0, longest_delay_.count())(random_);
  way.waiting.push_back({std::exchange(way.partial, {}), now + base::Nanoseconds(delay)});
  if (const std::optional<LinkFault> fault = due_fault(way, header.kind)) {
    bring_about(*fault, way);
  }
}

std::optional<LinkFault> FaultyLinks::due_fault(const Way& way, FrameKind kind) {
  const base::MutexLock lock(mutex_);
  if (!armed_.has_value() || happened_ || armed_->rank != way.sender || !is_data(kind) || --armed_->frame > 0) {
    return std::nullopt;
  }
  happened_ = true;
  return armed_;
}

void FaultyLinks::bring_about(const LinkFault& fault, Way& way) {
  if (fault.kind == FaultKind::kFreeze) {
    frozen_ = fault.rank;
    return;
  }
  // What waits goes out, and half of the last frame.
  way.waiting.back().bytes.resize(way.waiting.back().bytes.size() / 2);
  write(way, base::TimePoint::max());
  for (Way& other : ways_) {
    const bool breaks = fault.kind == FaultKind::kCut ? other.link == way.link : other.sender == fault.rank || other.receiver == fault.rank;
    if (breaks) {
      close(other);
    }
  }
}

void FaultyLinks::write(Way& way, base::TimePoint now) {
  while (!way.ended && !way.waiting.empty() && way.waiting.front().due <= now) {
    const std::vector<std::byte>& bytes = way.waiting.front().bytes;
    const ssize_t sent = ::send(way.to, bytes.data() + way.sent, bytes.size() - way.sent, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (sent < 0) {
      close(way);
      return;
    }
    way.sent += static_cast<std::size_t>(sent);
    if (way.sent == bytes.size()) {
      way.waiting.pop_front();
      way.sent = 0;
    }
  }
  if (way.no_more && way.waiting.empty()) {
    close(way);
  }
}

/// Both of its ends learn it.
void FaultyLinks::close(Way& way) {
  way.ended = true;
  (void)::shutdown(way.from, SHUT_RDWR);
  (void)::shutdown(way.to, SHUT_RDWR);
}

}  // namespace maypole::comm
