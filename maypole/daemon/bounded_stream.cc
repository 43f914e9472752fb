// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/bounded_stream.h"

#include "maypole/net/socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace maypole::daemon {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookUp{100};  // from a wait, whether the server is stopping

bool wait_until_ready(int socket, short events, base::TimePoint deadline, const std::function<bool()>& stopping) {
  while (true) {
    pollfd polled = {socket, events, 0};
    const int ready = ::poll(&polled, 1, net::poll_timeout(std::min<base::TimePoint>(deadline, Clock::now() + kLookUp)));
    if (ready > 0) {
      return true;
    }
    if ((ready < 0 && errno != EINTR) || Clock::now() >= deadline || stopping()) {
      return false;
    }
  }
}

}  // namespace

bool BoundedStream::fill(base::TimePoint deadline) {
  while (wait_until_ready(socket_, POLLIN, deadline, stopping_)) {
    const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got > 0) {
      next_ = 0;
      end_ = static_cast<std::size_t>(got);
      return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    }
  }
  return false;
}

bool BoundedStream::begin_request(base::Nanoseconds idle) {
  if (broken_ || stopping_() || (next_ == end_ && !fill(Clock::now() + idle))) {
    return false;
  }
  taken_ = 0;
  deadline_ = Clock::now() + limits_.request;
  return true;
}

ssize_t BoundedStream::read(char* target, std::size_t size) {
  if (broken_ || taken_ >= limits_.request_bytes || (next_ == end_ && !fill(deadline_))) {
    broken_ = true;
    return -1;
  }
  const std::size_t part = std::min({size, end_ - next_, limits_.request_bytes - taken_});
  std::copy_n(buffer_.data() + next_, part, target);
  next_ += part;
  taken_ += part;
  return static_cast<ssize_t>(part);
}

bool BoundedStream::is_writable() const {
  pollfd polled = {socket_, POLLRDHUP, 0};
  return !broken_ && ::poll(&polled, 1, 0) == 0;
}

ssize_t BoundedStream::write(const char* bytes, std::size_t size) {
  const base::TimePoint deadline = Clock::now() + limits_.write;
  std::size_t written = 0;
  while (written < size) {
    const ssize_t sent = ::send(socket_, bytes + written, size - written, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      written += static_cast<std::size_t>(sent);
    } else if (errno != EINTR && (errno != EAGAIN || !wait_until_ready(socket_, POLLOUT, deadline, stopping_))) {
      broken_ = true;
      return -1;
    }
  }
  return static_cast<ssize_t>(size);
}

void BoundedStream::drain() {
  constexpr std::chrono::seconds kShort{1};
  ::shutdown(socket_, SHUT_WR);
  const base::TimePoint deadline = Clock::now() + kShort;
  constexpr std::size_t kMostBytes = 16U << 20U;
  for (std::size_t drained = 0; drained < kMostBytes && Clock::now() < deadline && fill(deadline); drained += end_) {
  }
}

}  // namespace maypole::daemon
