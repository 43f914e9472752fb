// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/fd.h"
#include "maypole/base/units.h"

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <optional>

namespace maypole::cli {

// How a job that failed is ended, step by step.
inline constexpr std::chrono::seconds kLastWords{3};       // survivors print their own errors, then SIGTERM
inline constexpr std::chrono::seconds kAfterTerminate{2};  // then SIGKILL
inline constexpr std::chrono::seconds kAfterKill{7};       // then the agents themselves are given up

/// The signals that a launcher acts on (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD), to be read from a descriptor instead of
/// interrupting it. An error where no descriptor is left: signals then interrupt as before.
[[nodiscard]] absl::StatusOr<base::Fd> listen_for_signals();

/// Hands on what has come since the last call, all but SIGCHLD. Does not block.
void read_signals(const base::Fd& signals, absl::FunctionRef<void(int)> on_signal);

/// Milliseconds for poll() until `due`, at most a minute; -1 where nothing is due.
[[nodiscard]] int poll_milliseconds(std::optional<base::TimePoint> due);

}  // namespace maypole::cli
