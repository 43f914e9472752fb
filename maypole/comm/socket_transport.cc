// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/socket_transport.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdint>

namespace maypole::comm {

namespace {

// One poll takes at most this much, so that a fast peer on one lane cannot keep the other lanes waiting.
constexpr std::size_t kPollBudget = std::size_t{1} << 20;

constexpr std::uint32_t kFarRoundTripUs = 1000;
constexpr std::uint32_t kNoRoundTrip = ~std::uint32_t{0};  // the kernel has not measured one
// Bytes per second. A limit that is none: it only turns pacing on, at the rate that the kernel derives from its window.
constexpr std::uint64_t kNoPacingLimit = std::uint64_t{1} << 40;

absl::Status lost(const std::string& peer, int error_number) {
  if (error_number == 0) {
    return base::error(absl::StatusCode::kUnavailable, "{} is lost: it closed the connection", peer);
  }
  return absl::UnavailableError(base::errno_error(error_number, "{} is lost: its connection failed", peer).message());
}

}  // namespace

void pace_if_far(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_min_rtt >= kFarRoundTripUs &&
      info.tcpi_min_rtt != kNoRoundTrip) {
    ::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &kNoPacingLimit, sizeof(kNoPacingLimit));  // only a hint
  }
}

void SocketWriter::write(const OutgoingFrame& frame) {
  MAYPOLE_CHECK(!busy_);
  frame_ = frame;
  sent_ = 0;
  busy_ = true;
}

absl::StatusOr<bool> SocketWriter::pump() {
  bool progressed = false;
  while (busy_) {
    const std::size_t total = sizeof(FrameHeader) + frame_.header.bytes;
    std::array<iovec, 2> parts{};
    std::size_t num_parts = 0;
    if (sent_ < sizeof(FrameHeader)) {
      parts[num_parts++] = {reinterpret_cast<std::byte*>(&frame_.header) + sent_, sizeof(FrameHeader) - sent_};
      parts[num_parts++] = {const_cast<std::byte*>(frame_.payload), frame_.header.bytes};
    } else {
      const std::size_t done = sent_ - sizeof(FrameHeader);
      parts[num_parts++] = {const_cast<std::byte*>(frame_.payload) + done, frame_.header.bytes - done};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = num_parts;
    const ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return progressed;
      }
      return lost(peer_, errno);
    }
    progressed = true;
    sent_ += static_cast<std::size_t>(n);
    bytes_taken_ += static_cast<std::uint64_t>(n);
    if (sent_ == total) {
      busy_ = false;
      if (frame_.observer != nullptr) {
        frame_.observer->on_sent(frame_.buffer);
      }
    }
  }
  return progressed;
}

absl::StatusOr<std::size_t> SocketReader::read_some(std::byte* into, std::size_t want) {
  while (true) {
    const ssize_t n = ::recv(fd_, into + have_, want - have_, MSG_DONTWAIT);
    if (n > 0) {
      have_ += static_cast<std::size_t>(n);
      return static_cast<std::size_t>(n);
    }
    if (n == 0) {
      return lost(peer_, 0);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return std::size_t{0};
    }
    if (errno != EINTR) {
      return lost(peer_, errno);
    }
  }
}

absl::StatusOr<bool> SocketReader::poll(FrameSink& sink) {
  std::size_t taken = 0;
  bool progressed = false;
  while (taken < kPollBudget) {
    switch (state_) {
      case State::kHeader: {
        MAYPOLE_ASSIGN_OR_RETURN(const std::size_t n, read_some(reinterpret_cast<std::byte*>(&header_), sizeof(header_)));
        if (n == 0) {
          return progressed;
        }
        progressed = true;
        if (have_ < sizeof(header_)) {
          break;
        }
        if (header_.bytes > kMaxFrameBytes) {
          return base::error(absl::StatusCode::kFailedPrecondition, "{} sent a frame of {} bytes; at most {} are allowed", peer_,
                             header_.bytes, kMaxFrameBytes);
        }
        state_ = State::kWaiting;
        break;
      }
      case State::kWaiting: {
        MAYPOLE_ASSIGN_OR_RETURN(const bool accepted, sink.accept(header_));
        if (!accepted) {
          return progressed;
        }
        into_ = sink.destination(header_);
        have_ = 0;
        state_ = State::kPayload;
        break;
      }
      case State::kPayload: {
        if (have_ < header_.bytes) {
          MAYPOLE_ASSIGN_OR_RETURN(const std::size_t n, read_some(into_, header_.bytes));
          if (n == 0) {
            return progressed;
          }
          progressed = true;
          taken += n;
        }
        if (have_ == header_.bytes) {
          have_ = 0;
          state_ = State::kHeader;
          progressed = true;
          MAYPOLE_RETURN_IF_ERROR(sink.deliver(header_, into_));
        }
        break;
      }
    }
  }
  return progressed;
}

}  // namespace maypole::comm
