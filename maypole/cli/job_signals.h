// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/fd.h"
#include "maypole/base/units.h"

#include <optional>

namespace maypole::cli {

/// The signals that a launcher acts on (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD), to be read from a descriptor instead of
/// interrupting it. A descriptor that is not valid: there was none left.
[[nodiscard]] base::Fd listen_for_signals();

/// Milliseconds for poll() until `due`, at most a minute; -1 where nothing is due.
[[nodiscard]] int poll_milliseconds(std::optional<base::TimePoint> due);

}  // namespace maypole::cli
