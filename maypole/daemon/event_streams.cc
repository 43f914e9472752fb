// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/event_streams.h"

#include "maypole/net/socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace maypole::daemon {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kPartBytes = 64U << 10U;
constexpr int kSocketBytes = 128 << 10;
constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    "Connection: close\r\n\r\n";

}  // namespace

struct EventStreams::Stream {
  base::Fd socket;
  std::string reader;
  std::uint64_t next = 0;
  std::string part;  // that is being sent
  std::size_t sent = 0;
  base::TimePoint last;  // when a byte was taken last, or there was none to take
  bool over = false;

  [[nodiscard]] bool waits() const { return sent < part.size(); }

  /// Sends what the socket takes now.
  void send(base::TimePoint now) {
    while (waits() && !over) {
      const ssize_t taken = ::send(socket.get(), part.data() + sent, part.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (taken > 0) {
        sent += static_cast<std::size_t>(taken);
        last = now;
      } else if (taken < 0 && errno == EAGAIN) {
        return;
      } else if (taken == 0 || errno != EINTR) {
        over = true;
      }
    }
  }
};

EventStreams::EventStreams(EventLog& log, const StreamsLimits& limits)
    : log_(&log), limits_(limits), thread_([this](const std::stop_token& stop) { run(stop); }) {}

EventStreams::~EventStreams() {
  thread_.request_stop();
  log_->publish();
  thread_.join();
}

bool EventStreams::add(base::Fd& socket, const std::string& reader, std::string_view last_event_id) {
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  {
    const base::MutexLock lock(mutex_);
    if (size_ >= limits_.streams) {
      return false;
    }
    ++size_;
    const EventLog::Start start = log_->start(last_event_id);
    auto stream = std::make_unique<Stream>();
    stream->socket = std::move(socket);
    stream->reader = reader;
    stream->next = start.next;
    stream->part = std::string(kHead) + start.text;
    stream->last = Clock::now();
    added_.push_back(std::move(stream));
  }
  log_->publish();
  return true;
}

std::size_t EventStreams::size() const {
  const base::MutexLock lock(mutex_);
  return size_;
}

void EventStreams::serve(std::vector<std::unique_ptr<Stream>>& streams, base::TimePoint now) {
  const std::vector<std::string> cut_off = log_->take_cut_off();
  for (const std::unique_ptr<Stream>& each : streams) {
    Stream& stream = *each;
    stream.over = stream.over || std::ranges::find(cut_off, stream.reader) != cut_off.end();
    stream.send(now);
    while (!stream.waits() && !stream.over) {
      std::optional<EventLog::Part> part = log_->read(stream.next, kPartBytes);
      if (!part) {
        stream.over = true;  // it comes back with an id that is known no more, and begins anew
      } else if (!part->text.empty()) {
        stream.part = std::move(part->text);
        stream.next = part->next;
      } else if (now - stream.last >= limits_.heartbeat) {
        stream.part = ":\n\n";
      } else {
        break;
      }
      stream.sent = 0;
      stream.last = now;
      stream.send(now);
    }
    stream.over = stream.over || (stream.waits() && now - stream.last >= limits_.patience);
  }
  const std::size_t gone = std::erase_if(streams, [](const std::unique_ptr<Stream>& stream) { return stream->over; });
  const base::MutexLock lock(mutex_);
  size_ -= gone;
}

void EventStreams::run(const std::stop_token& stop) {
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<pollfd> polled;
  while (!stop.stop_requested()) {
    polled.assign(1, {log_->fd(), POLLIN, 0});
    base::TimePoint wake = Clock::now() + limits_.heartbeat;
    for (const std::unique_ptr<Stream>& stream : streams) {
      polled.push_back({stream->socket.get(), static_cast<short>(POLLRDHUP | (stream->waits() ? POLLOUT : 0)), 0});
      wake = std::min<base::TimePoint>(wake, stream->last + (stream->waits() ? limits_.patience : limits_.heartbeat));
    }
    (void)::poll(polled.data(), polled.size(), net::poll_timeout(wake));
    log_->silence();  // before the log is read: what comes later rings again
    for (std::size_t i = 0; i < streams.size(); ++i) {
      streams[i]->over = (polled[i + 1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    }
    {
      const base::MutexLock lock(mutex_);
      std::ranges::move(std::exchange(added_, {}), std::back_inserter(streams));
    }
    serve(streams, Clock::now());
  }
}

}  // namespace maypole::daemon
