// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who may change an elastic run while it is under way: a person's `maypole resize` (control_socket.h), or the daemon (head.h).

#include "maypole/daemon/head_messages.h"
#include "maypole/elastic/coordinator.h"

#include <absl/status/status.h>
#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

namespace maypole::cli {

class RunControl {
 public:
  virtual ~RunControl() = default;

  struct Request {
    std::uint64_t number = 0;
    elastic::SizeRange range = {};
    std::vector<daemon::WorkerPlace> ring = {};  // where it is not empty this ring is wanted, and no range
  };
  virtual void add_to(std::vector<pollfd>& polled) const = 0;
  /// How many entries add_to() adds now.
  [[nodiscard]] virtual std::size_t num_polled() const = 0;
  /// Takes what has come; `results` are the entries that add_to() added.
  [[nodiscard]] virtual std::vector<Request> read_ready(const pollfd* results) = 0;
  virtual void answer(std::uint64_t number, const absl::Status& status, const std::string& text) = 0;
  /// What the run is like now; `living`: the host of each worker that may have processes.
  virtual void tell(const elastic::Coordinator& /*run*/, const std::vector<std::string>& /*living*/) {}
};

}  // namespace maypole::cli
