// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/control_channel.h"

#include "maypole/base/status.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace maypole::comm {

namespace {

// A long answer must not keep data lanes and heartbeats waiting.
constexpr int kChunksPerPoll = 16;

}  // namespace

void ControlChannel::send(FrameHeader header, std::span<const std::byte> payload, std::shared_ptr<base::Fd> descriptor) {
  header.bytes = static_cast<std::uint32_t>(payload.size());
  Queued queued{std::vector<std::byte>(sizeof(header) + payload.size()), std::move(descriptor)};
  std::memcpy(queued.bytes.data(), &header, sizeof(header));
  if (!payload.empty()) {
    std::memcpy(queued.bytes.data() + sizeof(header), payload.data(), payload.size());
  }
  queue_.push_back(std::move(queued));
}

absl::StatusOr<bool> ControlChannel::pump() {
  bool progressed = false;
  while (!queue_.empty()) {
    Queued& front = queue_.front();
    iovec part{front.bytes.data() + sent_, front.bytes.size() - sent_};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (front.descriptor != nullptr && sent_ == 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* extra = CMSG_FIRSTHDR(&message);
      extra->cmsg_level = SOL_SOCKET;
      extra->cmsg_type = SCM_RIGHTS;
      extra->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = front.descriptor->get();
      std::memcpy(CMSG_DATA(extra), &fd, sizeof(int));
    }
    const ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return progressed;
      }
      return absl::UnavailableError(base::errno_error(errno, "{} is lost: its connection failed", peer_).message());
    }
    progressed = true;
    sent_ += static_cast<std::size_t>(n);
    if (sent_ == front.bytes.size()) {
      queue_.pop_front();
      sent_ = 0;
    }
  }
  return progressed;
}

absl::StatusOr<bool> ControlChannel::poll(const Handler& handler) {
  bool progressed = false;
  for (int turn = 0; turn < kChunksPerPoll; ++turn) {
    std::array<std::byte, 65536> chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by recvmsg
    iovec part{chunk.data(), chunk.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return progressed;
      }
      return absl::UnavailableError(base::errno_error(errno, "{} is lost: its connection failed", peer_).message());
    }
    if (n == 0) {
      return base::error(absl::StatusCode::kUnavailable, "{} is lost: it closed the connection", peer_);
    }
    progressed = true;
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return base::errno_error(EMFILE, "cannot take the memory that {} shares", peer_);
    }
    for (cmsghdr* extra = CMSG_FIRSTHDR(&message); extra != nullptr; extra = CMSG_NXTHDR(&message, extra)) {
      if (extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS) {
        const std::size_t count = (extra->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(extra) + i * sizeof(int), sizeof(int));
          descriptors_.emplace_back(fd);
        }
      }
    }
    received_.insert(received_.end(), chunk.data(), chunk.data() + n);
    std::size_t used = 0;
    while (received_.size() - used >= sizeof(FrameHeader)) {
      Message whole;
      std::memcpy(&whole.header, received_.data() + used, sizeof(FrameHeader));
      if (whole.header.bytes > kMaxFrameBytes) {
        return base::error(absl::StatusCode::kFailedPrecondition, "{} sent a message of {} bytes; at most {} are allowed", peer_,
                           whole.header.bytes, kMaxFrameBytes);
      }
      if (received_.size() - used < sizeof(FrameHeader) + whole.header.bytes) {
        break;
      }
      const auto begin = received_.begin() + static_cast<std::ptrdiff_t>(used + sizeof(FrameHeader));
      whole.payload.assign(begin, begin + whole.header.bytes);
      used += sizeof(FrameHeader) + whole.header.bytes;
      if (whole.header.kind == FrameKind::kRegion && !descriptors_.empty()) {
        whole.descriptor = std::move(descriptors_.front());
        descriptors_.pop_front();
      }
      MAYPOLE_RETURN_IF_ERROR(handler(std::move(whole)));
    }
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(used));
  }
  return progressed;
}

}  // namespace maypole::comm
