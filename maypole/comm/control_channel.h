// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/fd.h"
#include "maypole/comm/frame.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace maypole::comm {

/// Small messages in both directions over one socket of a link; on a local socket a descriptor may travel beside a message.
/// Progress thread only; never blocks. The socket is owned by the link.
class ControlChannel {
 public:
  struct Message {
    FrameHeader header;
    std::vector<std::byte> payload;
    base::Fd descriptor;  // kRegion only
  };
  using Handler = std::function<absl::Status(Message message)>;

  ControlChannel(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {}

  /// Queues a message; a descriptor may go with it. Shared: one descriptor goes to several peers.
  void send(FrameHeader header, std::span<const std::byte> payload, std::shared_ptr<base::Fd> descriptor = nullptr);
  /// Sends what can be sent; returns whether anything moved. Errors: the peer is gone.
  [[nodiscard]] absl::StatusOr<bool> pump();
  [[nodiscard]] absl::StatusOr<bool> poll(const Handler& handler);
  [[nodiscard]] bool wants_event() const { return !queue_.empty(); }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  struct Queued {
    std::vector<std::byte> bytes;  // header and payload
    std::shared_ptr<base::Fd> descriptor;
  };
  int fd_;
  std::string peer_;
  std::deque<Queued> queue_;
  std::size_t sent_ = 0;  // of queue_.front()
  std::vector<std::byte> received_;
  std::deque<base::Fd> descriptors_;
};

}  // namespace maypole::comm
