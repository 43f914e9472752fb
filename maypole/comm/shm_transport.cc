// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/shm_transport.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace maypole::comm {

namespace {

constexpr std::uint32_t kHello = 0x6d617970;  // "mayp"
// Few: what this rank has made of one frame should leave before it takes many more.
constexpr std::size_t kFramesPerPoll = 2;

/// Room for two descriptors beside one word.
struct Envelope {
  std::uint32_t word = kHello;
  iovec part{&word, sizeof(word)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};

  Envelope() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShmPort>> ShmPort::offer(int socket, int own_event, const std::string& peer) {
  MAYPOLE_ASSIGN_OR_RETURN(auto own, SharedRegion::create(sizeof(ShmSide), 0, true));
  ::new (own->bytes().data()) ShmSide();
  const std::array<int, 2> mine{own->fd(), own_event};
  Envelope envelope;
  cmsghdr* extra = CMSG_FIRSTHDR(&envelope.message);
  extra->cmsg_level = SOL_SOCKET;
  extra->cmsg_type = SCM_RIGHTS;
  extra->cmsg_len = CMSG_LEN(sizeof(mine));
  std::memcpy(CMSG_DATA(extra), mine.data(), sizeof(mine));
  if (::sendmsg(socket, &envelope.message, MSG_NOSIGNAL) != sizeof(envelope.word)) {
    return base::errno_error(errno, "cannot share memory with {}", peer);
  }
  return std::unique_ptr<ShmPort>(new ShmPort(std::move(own)));
}

absl::Status ShmPort::meet(int socket, const std::string& peer, base::Nanoseconds deadline) {
  pollfd wait{socket, POLLIN, 0};
  const auto timeout_ms = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count());
  if (::poll(&wait, 1, timeout_ms) <= 0) {
    return base::error(absl::StatusCode::kDeadlineExceeded, "{} did not share its memory within {} ms", peer, timeout_ms);
  }
  Envelope envelope;
  if (::recvmsg(socket, &envelope.message, MSG_CMSG_CLOEXEC) != sizeof(envelope.word) || envelope.word != kHello) {
    return base::error(absl::StatusCode::kUnavailable, "{} closed the connection while sharing memory", peer);
  }
  if ((envelope.message.msg_flags & MSG_CTRUNC) != 0) {
    return base::errno_error(EMFILE, "cannot take the memory that {} shares", peer);
  }
  const cmsghdr* extra = CMSG_FIRSTHDR(&envelope.message);
  std::array<int, 2> theirs{};
  if (extra == nullptr || extra->cmsg_type != SCM_RIGHTS || extra->cmsg_len != CMSG_LEN(sizeof(theirs))) {
    return base::error(absl::StatusCode::kFailedPrecondition, "{} sent no memory to share", peer);
  }
  std::memcpy(theirs.data(), CMSG_DATA(extra), sizeof(theirs));
  base::Fd side_fd(theirs[0]);
  peer_event_ = base::Fd(theirs[1]);
  MAYPOLE_ASSIGN_OR_RETURN(PeerRegion side, PeerRegion::map(std::move(side_fd)));
  if (side.bytes().size() < sizeof(ShmSide)) {
    return base::error(absl::StatusCode::kFailedPrecondition, "{} shares memory of another version", peer);
  }
  peer_.emplace(std::move(side));
  return absl::OkStatus();
}

void ShmPort::wake_peer_if_sleeping() {
  if (peer().sleeping.load() != 0) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(peer_event_.get(), &one, sizeof(one));  // full counter: already awake
  }
}

absl::StatusOr<const std::byte*> ShmPort::at(const ShmDescriptor& descriptor) const {
  if (descriptor.header.bytes == 0) {
    static constexpr std::byte kNothing{};
    return &kNothing;
  }
  const auto region = regions_.find(descriptor.region);
  if (region == regions_.end()) {
    return nullptr;
  }
  const auto bytes = region->second->bytes();
  if (descriptor.offset > bytes.size() || descriptor.header.bytes > bytes.size() - descriptor.offset) {
    return base::error(absl::StatusCode::kFailedPrecondition, "a frame lies outside shared memory region {}", descriptor.region);
  }
  return bytes.data() + descriptor.offset;
}

void ShmWriter::write(const OutgoingFrame& frame) {
  MAYPOLE_CHECK(writable());
  ShmLane& lane = port_.own().lanes[static_cast<std::size_t>(lane_)];
  const std::uint64_t number = released_ + outstanding_.size();
  ShmDescriptor& descriptor = lane.queue[number % kShmQueue];
  descriptor.header = frame.header;
  if (frame.header.bytes > 0) {
    const auto place = regions_.find(frame.payload, frame.header.bytes);
    if (!place) {  // the pool could share no more memory
      broken_ = true;
      return;
    }
    descriptor.region = place->region;
    descriptor.offset = place->offset;
  }
  outstanding_.push_back({frame.observer, frame.buffer});
  lane.produced.store(number + 1);  // after the descriptor; seq_cst for the sleeping protocol
  port_.wake_peer_if_sleeping();
}

absl::StatusOr<bool> ShmWriter::pump() {
  if (broken_) {
    return base::error(absl::StatusCode::kResourceExhausted, "a segment lies in memory that no peer can read");
  }
  const std::uint64_t consumed = port_.peer().lanes[static_cast<std::size_t>(lane_)].consumed.load(std::memory_order_acquire);
  bool progressed = false;
  while (released_ < consumed && !outstanding_.empty()) {
    const Outstanding done = outstanding_.front();
    outstanding_.pop_front();
    ++released_;
    progressed = true;
    if (done.observer != nullptr) {
      done.observer->on_sent(done.buffer);
    }
  }
  return progressed;
}

bool ShmWriter::releasable() const { return port_.peer().lanes[static_cast<std::size_t>(lane_)].consumed.load() > released_; }

bool ShmReader::pending() const { return port_.peer().lanes[static_cast<std::size_t>(lane_)].produced.load() > next_; }

absl::StatusOr<bool> ShmReader::poll(FrameSink& sink) {
  const ShmLane& lane = port_.peer().lanes[static_cast<std::size_t>(lane_)];
  bool progressed = false;
  stalled_ = false;
  for (std::size_t i = 0; i < kFramesPerPoll && next_ < lane.produced.load(); ++i) {
    const ShmDescriptor descriptor = lane.queue[next_ % kShmQueue];
    MAYPOLE_ASSIGN_OR_RETURN(const std::byte* payload, port_.at(descriptor));
    if (payload == nullptr) {  // its region is still on its way through the control lane
      stalled_ = true;
      return progressed;
    }
    MAYPOLE_ASSIGN_OR_RETURN(const bool accepted, sink.accept(descriptor.header));
    if (!accepted) {
      stalled_ = true;
      return progressed;
    }
    MAYPOLE_RETURN_IF_ERROR(sink.deliver(descriptor.header, payload));
    ++next_;
    progressed = true;
    port_.own().lanes[static_cast<std::size_t>(lane_)].consumed.store(next_);
    port_.wake_peer_if_sleeping();
  }
  return progressed;
}

}  // namespace maypole::comm
