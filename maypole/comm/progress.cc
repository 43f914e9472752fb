// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/progress.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

namespace maypole::comm {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPoolSegment = std::size_t{128} << 10;
// Bytes of a lane that may wait unsent in the kernel: what is there can no longer be overtaken by a lane that comes first.
constexpr int kUnsentLimit = 128 << 10;
constexpr auto kMeetDeadline = std::chrono::seconds(30);

}  // namespace

Progress::Progress(int rank, const ProgressOptions& options)
    : options_(options), rank_(static_cast<std::size_t>(rank)), deadlock_(static_cast<std::size_t>(rank), options.standstill) {}

absl::StatusOr<std::unique_ptr<Progress>> Progress::start(int rank, Connections connections, const ProgressOptions& options) {
  std::unique_ptr<Progress> progress(new Progress(rank, options));
  MAYPOLE_RETURN_IF_ERROR(progress->open(std::move(connections)));
  // Signals belong to the script's main thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  {
    const base::MutexLock lock(progress->life_->mutex);
    progress->life_->progress = progress.get();
  }
  progress->thread_ = std::jthread([p = progress.get()] { p->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return progress;
}

Progress::~Progress() {
  {
    const base::MutexLock lock(life_->mutex);
    life_->progress = nullptr;
  }
  post([this] { stopping_ = true; });  // after all that was posted before: an abort still reaches the peers
  if (thread_.joinable()) {
    thread_.join();
  }
  {
    const base::MutexLock lock(life_->mutex);
    while (life_->helpers > 0) {
      life_->helped.wait(life_->mutex);
    }
  }
  const absl::Status closed = base::error(absl::StatusCode::kCancelled, "the communicator was closed");
  for (const auto& lane : lanes_) {
    if (lane != nullptr) {
      lane->fail(closed);
    }
  }
  if (control_ != nullptr) {
    control_->fail_questions(closed);
  }
}

absl::Status Progress::open(Connections connections) {
  const model::Ring& ring = connections.ring;
  const std::size_t num_ranks = std::max<std::size_t>(1, ring.members.size());
  context_.position = {rank_, num_ranks};
  context_.epoch = ring.epoch;
  context_.regions = &regions_;
  context_.kernels = &reduce_kernels();
  epoll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  user_epoll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  event_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{EPOLLIN, {.u64 = kEventTag}};
  epoll_event user{EPOLLIN, {.u64 = kUserTag}};
  if (!epoll_.valid() || !user_epoll_.valid() || !event_.valid() || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_.get(), &event) != 0 ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, user_epoll_.get(), &user) != 0) {
    return base::errno_error(errno, "cannot watch sockets");
  }
  ControlPlane::Settings settings{rank_, num_ranks, ring.epoch, options_.silence, {}};
  for (std::size_t r = 0; r < ring.members.size(); ++r) {
    const model::RingMember& member = ring.members[r];
    settings.names.push_back(fmt::format("rank {} ({}{}{})", r, member.host, member.address.empty() ? "" : ", ", member.address));
  }
  for (auto* links : {&connections.next, &connections.previous, &connections.exchange}) {
    for (Link& link : *links) {
      std::string name = settings.names[static_cast<std::size_t>(link.peer)];
      MAYPOLE_RETURN_IF_ERROR(add_port(std::move(link), std::move(name)));
    }
  }
  for (Port& port : ports_) {
    if (port.shm != nullptr) {
      MAYPOLE_RETURN_IF_ERROR(port.shm->meet(port.link.sockets[index(Lane::kControl)].get(), port.name, kMeetDeadline));
    }
  }
  if (num_ranks > 1) {
    MAYPOLE_CHECK_GE(ports_.size(), 2u);
    context_.next_shares_memory = ports_[0].shm != nullptr;
    if (!ring.edge_bandwidth.empty()) {
      pacer_ = Pacer(ring.edge_bandwidth[rank_]);
      paced_ring_ = std::ranges::any_of(ring.edge_bandwidth, [](base::Bandwidth edge) { return edge.limited(); });
    }
    const Port& next = ports_[0];
    description_ = next.shm != nullptr ? fmt::format("to {} through shared memory", next.name)
                                       : fmt::format("to {} by tcp from {}", next.name, next.link.local_address);
    if (pacer_.limited()) {
      description_ += fmt::format(", paced to {}", format_bandwidth(ring.edge_bandwidth[rank_]));
    }
  }
  control_ = std::make_unique<ControlPlane>(std::move(settings));
  if (num_ranks > 1) {
    control_->set_neighbours(ports_[0].control.get(), ports_[1].control.get(), Clock::now());
  }
  pool_ = std::make_unique<SegmentPool>(kPoolSegment, [this](std::size_t bytes) { return make_region(bytes); });
  context_.pool = pool_.get();
  for (const Lane lane : kDataLanes) {
    lanes_[index(lane)] = std::make_unique<LaneState>(lane, context_, num_ranks > 1 ? ports_[1].name : "");
  }
  for (Port& port : ports_) {
    if (port.exchange_number >= 0) {
      port.exchange_sink = std::make_unique<ExchangeSink>(*lanes_[index(Lane::kUser)], port.exchange_number, port.name);
    }
  }
  return absl::OkStatus();
}

absl::Status Progress::add_port(Link link, std::string name) {
  Port port;
  port.is_next = ports_.empty();
  port.is_previous = ports_.size() == 1;
  port.exchange_number = ports_.size() < 2 ? -1 : link.exchange;
  port.name = std::move(name);
  const bool exchange = port.exchange_number >= 0;
  if (link.shared_memory) {
    MAYPOLE_ASSIGN_OR_RETURN(port.shm, ShmPort::offer(link.sockets[index(Lane::kControl)].get(), event_.get(), port.name));
    context_.exchange_shares_memory |= exchange;
  }
  for (const Lane lane : kDataLanes) {
    if (exchange && lane != Lane::kUser) {
      continue;
    }
    const int fd = link.sockets[index(lane)].get();
    if (port.is_next || exchange) {
      port.writers[index(lane)] =
          port.shm != nullptr ? std::unique_ptr<FrameWriter>(std::make_unique<ShmWriter>(*port.shm, static_cast<int>(lane), regions_))
                              : std::make_unique<SocketWriter>(fd, port.name);
    }
    if (port.is_previous || exchange) {
      port.readers[index(lane)] = port.shm != nullptr
                                      ? std::unique_ptr<FrameReader>(std::make_unique<ShmReader>(*port.shm, static_cast<int>(lane)))
                                      : std::make_unique<SocketReader>(fd, port.name);
    }
    if (port.writers[index(lane)] != nullptr && port.shm == nullptr) {
      pace_if_far(fd);
    }
    if (port.is_next && lane != Lane::kUser && fd >= 0) {
      ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentLimit, sizeof(kUnsentLimit));
    }
  }
  const int control = link.sockets[index(Lane::kControl)].get();
  if (control >= 0) {
    port.control = std::make_unique<ControlChannel>(control, port.name);
  }
  port.link = std::move(link);
  ports_.push_back(std::move(port));
  update_interest(ports_.size() - 1);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SharedRegion>> Progress::make_region(std::size_t bytes) {
  const bool shared = context_.next_shares_memory || context_.exchange_shares_memory;
  MAYPOLE_ASSIGN_OR_RETURN(auto region, SharedRegion::create(bytes, next_region_.fetch_add(1), shared));
  regions_.add(*region);
  region->on_gone([life = std::weak_ptr<Life>(life_)](std::uint32_t id) {
    const auto alive = life.lock();
    if (alive != nullptr) {
      const base::MutexLock lock(alive->mutex);
      if (alive->progress != nullptr) {
        alive->progress->forget_region(id);
      }
    }
  });
  if (shared) {
    const int fd = ::fcntl(region->fd(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      return base::errno_error(errno, "cannot share {} bytes of memory", bytes);
    }
    // Copyable, as posted functions must be; closed once every peer has it.
    post([this, id = region->id(), descriptor = std::make_shared<base::Fd>(fd)] { share_region_on_loop(id, descriptor); });
  }
  return region;
}

void Progress::share_region_on_loop(std::uint32_t id, const std::shared_ptr<base::Fd>& descriptor) {
  for (Port& port : ports_) {
    if (port.shm != nullptr && !port.is_previous) {
      FrameHeader header;
      header.kind = FrameKind::kRegion;
      header.epoch = context_.epoch;
      header.sequence = id;
      port.control->send(header, {}, descriptor);
    }
  }
}

void Progress::forget_region(std::uint32_t id) {
  regions_.remove(id);
  post([this, id] {
    for (Port& port : ports_) {
      if (port.shm != nullptr && !port.is_previous) {
        FrameHeader header;
        header.kind = FrameKind::kRegionGone;
        header.epoch = context_.epoch;
        header.sequence = id;
        port.control->send(header, {});
      }
    }
  });
}

void Progress::post(std::function<void()> f) {
  {
    const base::MutexLock lock(mutex_);
    posted_.push_back(std::move(f));
  }
  if (sleeping_.load()) {
    wake();
  }
}

void Progress::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof(one));  // full counter: awake already
}

absl::Status Progress::status() const {
  const base::MutexLock lock(mutex_);
  return status_;
}

void Progress::close_after_fork() {
  for (Port& port : ports_) {
    for (base::Fd& socket : port.link.sockets) {
      socket.reset();
    }
  }
  epoll_.reset();
  user_epoll_.reset();
  event_.reset();
  regions_.make_private();
  if (thread_.joinable()) {
    thread_.detach();  // it does not exist in the child
  }
}

bool Progress::run_posted() {
  std::vector<std::function<void()>> posted;
  {
    const base::MutexLock lock(mutex_);
    posted.swap(posted_);
  }
  for (const auto& f : posted) {
    f();
  }
  return !posted.empty();
}

void Progress::start_on_loop(Lane lane, std::unique_ptr<Collective> collective, std::int64_t priority) {
  if (failed_) {
    collective->work().finish(status());
    return;
  }
  ++counts_.started[index(lane)];
  deadlock_.moved();
  const Work work = collective->work();
  absl::Status started = lane_on_loop(lane).start(std::move(collective), priority, Clock::now());
  if (started.ok()) {
    started = control_->check_departed(counts_, pending());
  }
  if (!started.ok()) {
    fail_on_loop(started, true);
    if (!work.done()) {  // it did not get as far as the lane
      work.finish(started);
    }
  }
}

void Progress::watch_on_loop(std::function<bool()> f) {
  watched_since_ = Clock::now();
  watchers_.push_back(std::move(f));
}

/// What the caller waits for without a limit; nothing while anything goes on here by itself.
std::optional<Wait> Progress::caller_waits() const {
  CallerState state = caller_state_ ? caller_state_() : CallerState{};
  if (state.working) {
    return std::nullopt;
  }
  std::string motion;
  for (const auto& lane : lanes_) {
    if (!state.wait) {
      state.wait = lane->waited();
    }
    if (!lane->empty()) {
      motion += (motion.empty() ? "" : ", ") + lane->oldest().second;
    }
  }
  if (!state.wait && !watchers_.empty()) {
    state.wait = Wait{watched_since_, "the other ranks to end"};
  }
  if (state.wait && !motion.empty()) {
    state.wait->what += fmt::format(" [{}]", motion);
  }
  return state.wait;
}

void Progress::pass_token(const ControlChannel::Message& message, base::TimePoint now) {
  if (!deadlock_.stands(now)) {
    return;
  }
  if (const auto token = deadlock_.pass(ControlPlane::token_of(message), caller_waits(), now)) {
    control_->send_token(*token);
  } else if (!deadlock_.verdict().empty()) {
    fail_on_loop(base::error(absl::StatusCode::kDeadlineExceeded, "a deadlock: every rank waits, and nothing has moved for {:.3g} s: {}",
                             base::to_seconds(options_.standstill), deadlock_.verdict()),
                 true);
  }
}

std::array<bool, 3> Progress::pending() const { return {!lanes_[0]->empty(), !lanes_[1]->empty(), !lanes_[2]->empty()}; }

bool Progress::idle_on_loop() const {
  const auto lanes = pending();
  return !lanes[0] && !lanes[1] && !lanes[2];
}

/// The lanes to the next rank share one link: it is pressed while any of them is.
void Progress::measure(base::TimePoint now) {
  const Port& next = ports_[0];
  if (next.shm != nullptr) {
    return;
  }
  std::uint64_t taken = 0;
  bool pressed = false;
  for (const Lane lane : kDataLanes) {
    const auto& writer = static_cast<const SocketWriter&>(*next.writers[index(lane)]);
    taken += writer.bytes_taken();
    pressed |= !writer.writable();
  }
  meter_.note(now, taken, pressed);
}

void Progress::depart_on_loop() {
  if (!departed_ && !ports_.empty()) {
    control_->say_goodbye(counts_);
  }
  departed_ = true;
  suspect_.reset();  // whoever is gone now has nothing more to give or to take
}

bool Progress::unreachable_on_loop() const {
  return departed_ && std::ranges::any_of(ports_, [](const Port& port) { return port.is_previous && port.dead[index(Lane::kControl)]; });
}

void Progress::fail_on_loop(const absl::Status& why, bool tell_peers) {
  if (failed_) {
    return;
  }
  failed_ = true;
  const absl::Status reason = pool_->failure().ok() ? why : pool_->failure();  // of which `why` follows
  {
    const base::MutexLock lock(mutex_);
    status_ = reason;
  }
  paced_.reset();
  for (Port& port : ports_) {
    for (const Lane lane : kDataLanes) {
      give_up(port, index(lane));
    }
  }
  if (tell_peers && !ports_.empty()) {
    control_->send_abort(reason);
    const base::TimePoint now = Clock::now();
    for (Port& port : ports_) {
      if (port.control != nullptr && !port.dead[index(Lane::kControl)]) {
        moved(port, Lane::kControl, port.control->pump(), now);
      }
    }
  }
  for (const auto& lane : lanes_) {
    lane->fail(reason);
  }
  control_->fail_questions(reason);
}

}  // namespace maypole::comm
