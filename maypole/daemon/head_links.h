// SPDX-License-Identifier: Apache-2.0
#pragma once

// The daemon's connections to the heads of elastic jobs (head_messages.h), made again whenever one breaks.

#include "maypole/base/units.h"
#include "maypole/daemon/executor.h"
#include "maypole/daemon/head_messages.h"

#include <poll.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace maypole::daemon {

class HeadLinks {
 public:
  /// `identity` of the store.
  explicit HeadLinks(std::string identity) : identity_(std::move(identity)) {}
  [[nodiscard]] std::string socket_of(EpochId id) const;

  void watch(EpochId id);
  void forget(EpochId id) { links_.erase(id); }
  /// Sent when there is a connection, and again at the next one.
  void order(EpochId id, HeadOrder order);
  [[nodiscard]] std::vector<WorkerEvent> poll();
  void add_to(std::vector<pollfd>& polled) const;
  /// Milliseconds after which poll() is worth calling; -1: only for what add_to() added.
  [[nodiscard]] int poll_again_ms() const;

 private:
  struct Link {
    std::optional<HeadStream> stream;
    std::optional<HeadOrder> order;
    int tries = 0;  // since it was connected last
    base::TimePoint next_try{};
  };
  void connect(EpochId id, Link& link);

  std::string identity_;
  std::map<EpochId, Link> links_;
};

}  // namespace maypole::daemon
