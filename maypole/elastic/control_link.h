// SPDX-License-Identifier: Apache-2.0
#pragma once

// A worker's end of its control socket. A thread of its own listens and says every now and then that the process lives, so that a long
// computation, or an interpreter that is busy, is never taken for a dead worker, and a stopped process always is.

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"
#include "maypole/base/units.h"
#include "maypole/elastic/control_messages.h"

#include <absl/status/status.h>

#include <deque>
#include <optional>
#include <thread>

namespace maypole::elastic {

class ControlLink {
 public:
  /// `socket`: a connected SOCK_SEQPACKET socket. `silence`: after so long without a word the coordinator takes this worker for lost.
  ControlLink(base::Fd socket, base::Nanoseconds silence);
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  /// Thread: any. kUnavailable: the coordinator is gone.
  [[nodiscard]] absl::Status send(const WorkerReport& report);
  /// The oldest order that has come and was not taken yet. Does not block.
  [[nodiscard]] std::optional<Order> take();
  /// Waits for an order, at most `limit`. kUnavailable: the coordinator is gone, and no order will come.
  [[nodiscard]] absl::StatusOr<std::optional<Order>> wait(base::Nanoseconds limit);

 private:
  void listen();
  void hear(std::span<const std::byte> packet);

  const base::Fd socket_;
  const base::Nanoseconds beat_;
  base::Fd stop_;  // an eventfd that ends the thread
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: the members above outlive it
};

}  // namespace maypole::elastic
