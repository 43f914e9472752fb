// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which process is meant, when its number may have been given to another one since, or the machine started anew.

#include "maypole/base/fd.h"

#include <sys/types.h>

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace maypole::daemon {

struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // after the machine's start
  std::string boot;               // of the machine's start
  bool operator==(const ProcessIdentity&) const = default;
};

/// The caller's own.
[[nodiscard]] ProcessIdentity own_identity();
/// A descriptor of that very process, readable once it has ended; empty where it has ended already. kUnavailable where that cannot be
/// told now, as when no descriptor is left.
[[nodiscard]] absl::StatusOr<base::Fd> open_process(const ProcessIdentity& identity);
/// Sends a signal to the process of the descriptor; no effect on one that has ended.
void signal_process(const base::Fd& process, int signal);

/// Kills every process that carries this variable in the environment it was started with. Returns how many there were: call again
/// until it is 0.
[[nodiscard]] std::size_t kill_marked(const std::string& variable);

}  // namespace maypole::daemon
