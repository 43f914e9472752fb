// SPDX-License-Identifier: Apache-2.0
// What the progress thread does over and over: receive, reduce, send by priority, keep the peers' time, sleep. progress.cc holds how it
// begins, what others post to it, and how it ends.

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/comm/progress.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

namespace maypole::comm {

namespace {

using Clock = std::chrono::steady_clock;

// How long to wait, after a connection broke, for the message that says why.
constexpr auto kVerdictDelay = std::chrono::milliseconds(200);
// Over sockets: what the kernel holds cannot be overtaken. Through shared memory everything is offered at once: the peer chooses its lane
// itself, and if it had to wait for the next turn here, the two ranks would reduce in turns and not at the same time.
constexpr int kFramesPerTurn = 8;
// Over sockets an operation that lasts longer is no small one any more. It is paid for by the wire or by a late rank, not by wake-ups; and
// looking again would take the cores from the peers' stacks, and from whoever computes, after every frame of any lane.
constexpr auto kShort = std::chrono::milliseconds(1);

}  // namespace

void Progress::run() {
  pthread_setname_np(pthread_self(), "maypole-comm");
  const base::MutexLock lock(turn_mutex_);  // let go of only while asleep
  while (!stopping_) {
    const base::TimePoint now = Clock::now();
    const bool progressed = turn(now);
    if (progressed) {
      last_move_ = now;
    }
    wait(now, progressed);
  }
}

bool Progress::turn(base::TimePoint now) {
  bool progressed = run_posted();
  bool moved = false;
  for (Port& port : ports_) {
    progressed |= move_control(port, now);
    if (!failed_) {
      moved |= receive(port);
    }
  }
  if (!failed_ && !ports_.empty()) {
    moved |= send(now);
    measure(now);
  }
  if (moved) {
    deadlock_.moved();
  }
  if (progressed || moved) {
    progressed = true;
    finish_complete();
  }
  std::erase_if(watchers_, [](const std::function<bool()>& watcher) { return watcher(); });
  check_time(now);
  return progressed;
}

bool Progress::moved(Port& port, Lane lane, const absl::StatusOr<bool>& result, base::TimePoint now) {
  if (result.ok()) {
    return *result;
  }
  give_up(port, index(lane));
  if (result.status().code() != absl::StatusCode::kUnavailable) {
    fail_on_loop(result.status(), true);
  } else if (!failed_ && !departed_ && !control_->departed(static_cast<std::size_t>(port.link.peer)) && !suspect_) {
    suspect_ = Suspect{result.status(), now + kVerdictDelay};
  }
  if (lane == Lane::kControl && (port.is_next || port.is_previous)) {
    control_->lose_channel(port.is_next);
  }
  return false;
}

void Progress::give_up(Port& port, std::size_t lane) {
  port.dead[lane] = true;
  const int fd = port.link.sockets[lane].get();
  if (fd >= 0 && port.interest[lane] != 0) {
    ::epoll_ctl(epoll_of(lane), EPOLL_CTL_DEL, fd, nullptr);
    port.interest[lane] = 0;
  }
}

bool Progress::receive(Port& port) {
  bool progressed = false;
  for (const Lane lane : kDataLanes) {
    progressed |= receive_on_lane(port, lane);
  }
  received_bytes_.store(lanes_[0]->received_bytes() + lanes_[1]->received_bytes() + lanes_[2]->received_bytes(), std::memory_order_relaxed);
  return progressed;
}

bool Progress::receive_on_lane(Port& port, Lane lane) {
  const std::size_t l = index(lane);
  FrameReader* reader = port.readers[l].get();
  if (reader == nullptr || port.dead[l] || failed_ || (port.shm == nullptr && !port.readable[l] && !reader->stalled())) {
    return false;
  }
  FrameSink& sink = port.exchange_sink != nullptr ? static_cast<FrameSink&>(*port.exchange_sink) : *lanes_[l];
  port.readable[l] = moved(port, lane, reader->poll(sink), Clock::now());
  return port.readable[l];
}

bool Progress::send(base::TimePoint now) {
  bool progressed = send_exchange();
  if (pacer_.limited()) {
    return progressed | send_paced(now);
  }
  for (const Lane lane : kDataLanes) {
    progressed |= send_on_lane(lane);
  }
  return progressed;
}

bool Progress::send_on_lane(Lane lane) {
  Port& port = ports_[0];
  const std::size_t l = index(lane);
  if (port.dead[l] || failed_) {
    return false;
  }
  FrameWriter& writer = *port.writers[l];
  bool progressed = moved(port, lane, writer.pump(), Clock::now());
  for (int i = 0; (i < kFramesPerTurn || port.shm != nullptr) && !port.dead[l] && writer.writable(); ++i) {
    if (lane == Lane::kAllGather) {
      const FrameWriter& scatter = *port.writers[index(Lane::kReduceScatter)];
      if (lanes_[index(Lane::kReduceScatter)]->sender() != nullptr || !scatter.writable()) {
        break;  // a reduce-scatter waits for the link
      }
    }
    Collective* collective = lanes_[l]->sender();
    if (collective == nullptr) {
      break;
    }
    const OutgoingFrame frame = collective->take_outgoing();
    sent_bytes_.fetch_add(frame.header.bytes, std::memory_order_relaxed);
    writer.write(frame);
    progressed = true;
    moved(port, lane, writer.pump(), Clock::now());
  }
  return progressed;
}

bool Progress::send_paced(base::TimePoint now) {
  Port& port = ports_[0];
  bool progressed = false;
  for (const Lane lane : kDataLanes) {
    if (!port.dead[index(lane)]) {
      progressed |= moved(port, lane, port.writers[index(lane)]->pump(), now);
    }
  }
  while (!failed_) {
    if (paced_) {
      FrameWriter& writer = *port.writers[index(paced_->lane)];
      if (paced_->leaves > now || !writer.writable() || port.dead[index(paced_->lane)]) {
        return progressed;
      }
      sent_bytes_.fetch_add(paced_->frame.header.bytes, std::memory_order_relaxed);
      writer.write(paced_->frame);
      const Lane lane = paced_->lane;
      paced_.reset();
      moved(port, lane, writer.pump(), now);
      progressed = true;
    }
    for (const Lane lane : kDataLanes) {
      Collective* collective = lanes_[index(lane)]->sender();
      if (collective != nullptr && port.writers[index(lane)]->writable()) {
        const OutgoingFrame frame = collective->take_outgoing();
        paced_ = Paced{lane, frame, pacer_.occupy(now, frame.header.bytes + sizeof(FrameHeader))};
        break;
      }
    }
    if (!paced_) {
      return progressed;
    }
  }
  return progressed;
}

bool Progress::send_exchange() {
  bool progressed = false;
  LaneState& lane = *lanes_[index(Lane::kUser)];
  for (std::size_t p = 2; p < ports_.size(); ++p) {
    Port& port = ports_[p];
    if (port.dead[index(Lane::kUser)]) {
      continue;
    }
    FrameWriter& writer = *port.writers[index(Lane::kUser)];
    progressed |= moved(port, Lane::kUser, writer.pump(), Clock::now());
    Collective* collective = writer.writable() ? lane.exchanger(static_cast<std::size_t>(port.exchange_number)) : nullptr;
    if (collective != nullptr) {
      const OutgoingFrame frame = collective->take_exchange(static_cast<std::size_t>(port.exchange_number));
      sent_bytes_.fetch_add(frame.header.bytes, std::memory_order_relaxed);
      writer.write(frame);
      moved(port, Lane::kUser, writer.pump(), Clock::now());
      progressed = true;
    }
  }
  return progressed;
}

bool Progress::move_control(Port& port, base::TimePoint now) {
  const std::size_t l = index(Lane::kControl);
  if (port.control == nullptr || port.dead[l]) {
    return false;
  }
  bool progressed = false;
  if (port.readable[l]) {
    const bool read = moved(port, Lane::kControl,
                            port.control->poll([&](ControlChannel::Message m) { return on_control(port, std::move(m), now); }), now);
    port.readable[l] = read;
    progressed |= read;
  }
  if (!port.dead[l] && port.control->wants_event()) {
    progressed |= moved(port, Lane::kControl, port.control->pump(), now);
  }
  return progressed;
}

absl::Status Progress::on_control(Port& port, ControlChannel::Message message, base::TimePoint now) {
  if (message.header.kind == FrameKind::kRegion && port.shm != nullptr && message.descriptor.valid()) {
    MAYPOLE_ASSIGN_OR_RETURN(PeerRegion region, PeerRegion::map(std::move(message.descriptor)));
    port.shm->add_peer_region(static_cast<std::uint32_t>(message.header.sequence), std::move(region));
    return absl::OkStatus();
  }
  if (message.header.kind == FrameKind::kRegionGone && port.shm != nullptr) {
    port.shm->remove_peer_region(static_cast<std::uint32_t>(message.header.sequence));
    return absl::OkStatus();
  }
  if (message.header.kind == FrameKind::kStandstill && message.header.epoch == context_.epoch && port.is_previous) {
    pass_token(message, now);
    return absl::OkStatus();
  }
  const bool is_goodbye = message.header.kind == FrameKind::kGoodbye;
  const absl::Status status = control_->on_message(port.is_next, std::move(message), now);
  if (!status.ok()) {
    fail_on_loop(status, false);
  } else if (is_goodbye) {
    const absl::Status departed = control_->check_departed(counts_, pending());
    if (!departed.ok()) {
      fail_on_loop(departed, true);
    }
  }
  return absl::OkStatus();
}

void Progress::finish_complete() {
  for (const Lane lane : kDataLanes) {
    for (const auto& collective : lanes_[index(lane)]->take_complete()) {
      collective->work().finish(absl::OkStatus());
    }
  }
}

void Progress::check_time(base::TimePoint now) {
  if (ports_.empty() || failed_) {
    return;
  }
  if (!pool_->failure().ok()) {
    fail_on_loop(pool_->failure(), true);
    return;
  }
  if (suspect_ && now >= suspect_->verdict) {
    fail_on_loop(suspect_->reason, true);
    return;
  }
  const bool due = now >= control_->next_tick();
  const absl::Status alive = control_->tick(now);
  if (control_->last_gap().count() > 0) {
    for (const auto& lane : lanes_) {
      lane->forgive(control_->last_gap());
    }
    deadlock_.restart(now);
  }
  if (!alive.ok()) {
    fail_on_loop(alive, true);
    return;
  }
  if (!due) {
    return;
  }
  if (deadlock_.stands(now)) {
    if (const auto token = deadlock_.begin(caller_waits(), now)) {
      control_->send_token(*token);
    }
  }
  for (const auto& lane : lanes_) {
    const auto [started, what] = lane->oldest();
    if (started != base::TimePoint::max() && now - started > options_.timeout) {
      fail_on_loop(base::error(absl::StatusCode::kDeadlineExceeded,
                               "waited {:.1f} s for {} and the ranks before it in {}; a longer limit is set by MAYPOLE_TIMEOUT",
                               base::to_seconds(now - started), ports_[1].name, what),
                   true);
      return;
    }
  }
}

bool Progress::looks_again(base::TimePoint now) const {
  if (ports_.empty() || now - last_move_ > options_.spin) {
    return false;
  }
  if (ports_[0].shm != nullptr || ports_[1].shm != nullptr) {
    return !idle_on_loop();
  }
  return lanes_[index(Lane::kUser)]->has_younger_than(now - kShort);
}

bool Progress::frames_waiting() const {
  for (const Port& port : ports_) {
    for (const Lane lane : kDataLanes) {
      const std::size_t l = index(lane);
      if (port.shm == nullptr || failed_) {
        continue;
      }
      const auto* reader = static_cast<const ShmReader*>(port.readers[l].get());
      if (reader != nullptr && !reader->stalled() && reader->pending()) {
        return true;
      }
      const auto* writer = static_cast<const ShmWriter*>(port.writers[l].get());
      if (writer != nullptr && writer->releasable()) {
        return true;
      }
    }
  }
  return false;
}

void Progress::update_interest(std::size_t port_index) {
  Port& port = ports_[port_index];
  for (std::size_t l = 0; l < static_cast<std::size_t>(kNumLanes); ++l) {
    const int fd = port.link.sockets[l].get();
    if (fd < 0 || port.dead[l]) {
      continue;
    }
    std::uint32_t want = 0;
    if (l == index(Lane::kControl)) {
      want = EPOLLIN | (port.control->wants_event() ? EPOLLOUT : 0U);
    } else {
      const FrameReader* reader = port.readers[l].get();
      // A lane that only sends is watched for the peer's closing; one that stands still is not read.
      want = reader != nullptr ? (reader->stalled() ? 0U : EPOLLIN) : EPOLLRDHUP;
      const FrameWriter* writer = port.writers[l].get();
      if (writer != nullptr && !writer->writable()) {
        want |= EPOLLOUT;
      }
    }
    want |= EPOLLHUP;  // always reported; keeps `interest` apart from "not registered"
    if (want != port.interest[l]) {
      epoll_event event{want, {.u64 = port_index * kNumLanes + l}};
      ::epoll_ctl(epoll_of(l), port.interest[l] == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
      port.interest[l] = want;
    }
  }
}

/// While nothing is in motion on the user lane its sockets are let be: a peer that is ahead by one operation would wake this rank for
/// nothing, and a peer that is lost is noticed on the control lane.
void Progress::watch_user(bool on) {
  if (on != user_watched_) {
    epoll_event event{on ? EPOLLIN : 0U, {.u64 = kUserTag}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, user_epoll_.get(), &event);
    user_watched_ = on;
  }
}

int Progress::epoll_of(std::size_t lane) const { return lane == index(Lane::kUser) ? user_epoll_.get() : epoll_.get(); }

int Progress::wait_for_events(epoll_event* events, int capacity, base::Nanoseconds timeout) {
  const timespec limit{timeout.count() / 1'000'000'000, timeout.count() % 1'000'000'000};
  int n = ::epoll_pwait2(epoll_.get(), events, capacity, &limit, nullptr);
  if (n < 0 && errno == ENOSYS) {  // before Linux 5.11: milliseconds, rounded up
    n = ::epoll_wait(epoll_.get(), events, capacity, static_cast<int>((timeout.count() + 999'999) / 1'000'000));
  }
  return n;
}

int Progress::sleep_for_events(epoll_event* events, int capacity, base::Nanoseconds timeout) {
  turn_mutex_.unlock();
  const int n = wait_for_events(events, capacity, timeout);
  const int error = errno;
  wanted_.store(true);
  turn_mutex_.lock();
  wanted_.store(false);
  errno = error;
  return n;
}

void Progress::wait(base::TimePoint now, bool progressed) {
  base::Nanoseconds timeout{0};
  const bool blocks = !progressed && !looks_again(now);
  if (blocks) {
    timeout = std::chrono::seconds(1);
    if (!ports_.empty() && !failed_) {
      timeout = std::min(timeout, control_->next_tick() - now);
      if (paced_ && ports_[0].writers[index(paced_->lane)]->writable()) {
        timeout = std::min(timeout, paced_->leaves - now);
      }
      if (suspect_) {
        timeout = std::min(timeout, suspect_->verdict - now);
      }
    }
    timeout = std::max(timeout, base::Nanoseconds{0});
    sleeping_.store(true);
    for (Port& port : ports_) {
      if (port.shm != nullptr) {
        port.shm->own().sleeping.store(1);
      }
    }
    bool posted = false;
    {
      const base::MutexLock lock(mutex_);
      posted = !posted_.empty();
    }
    if (posted || frames_waiting()) {
      timeout = base::Nanoseconds{0};
    }
  }
  if (!progressed && !blocks) {
    ::sched_yield();  // the peer that we look for may want this very processor
  }
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    update_interest(p);
  }
  watch_user(!lanes_[index(Lane::kUser)]->empty());
  std::array<epoll_event, 64> events;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by the kernel
  const int n = blocks ? sleep_for_events(events.data(), static_cast<int>(events.size()), timeout)
                       : wait_for_events(events.data(), static_cast<int>(events.size()), timeout);
  const int error = n < 0 ? errno : 0;
  if (blocks) {
    sleeping_.store(false);
    for (Port& port : ports_) {
      if (port.shm != nullptr) {
        port.shm->own().sleeping.store(0);
      }
    }
  }
  if (error != 0 && error != EINTR) {
    fail_on_loop(base::errno_error(error, "cannot wait for sockets"), true);
  }
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kEventTag) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof(count));
    } else if (event.data.u64 == kUserTag) {
      std::array<epoll_event, 16> inner;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by the kernel
      const int m = ::epoll_wait(user_epoll_.get(), inner.data(), static_cast<int>(inner.size()), 0);
      for (int k = 0; k < m; ++k) {
        note_event(inner[static_cast<std::size_t>(k)], now);
      }
    } else {
      note_event(event, now);
    }
  }
}

void Progress::note_event(const epoll_event& event, base::TimePoint now) {
  Port& port = ports_[event.data.u64 / kNumLanes];
  const std::size_t l = event.data.u64 % kNumLanes;
  const bool closed = (event.events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
  if (closed && l != index(Lane::kControl) && port.readers[l] == nullptr) {
    moved(port, static_cast<Lane>(l), base::error(absl::StatusCode::kUnavailable, "{} is lost: it closed the connection", port.name), now);
    return;
  }
  if ((event.events & EPOLLIN) != 0 || closed) {
    port.readable[l] = true;
    if (closed && l != index(Lane::kControl) && port.readers[l]->stalled()) {  // nobody reads it: the closing itself is the news
      moved(port, static_cast<Lane>(l), base::error(absl::StatusCode::kUnavailable, "{} is lost: it closed the connection", port.name),
            now);
    }
  }
}

}  // namespace maypole::comm
