// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace maypole::daemon {

/// `maypole shim FOLDER`, started by the daemon once per worker: claims the folder of worker_files.h, starts the worker, keeps its output,
/// ends it on SIGTERM (and with SIGKILL three seconds later), leaves nothing of it behind and writes how it ended. It lives in a session
/// of its own and outlives the daemon. Returns the exit code.
[[nodiscard]] int run_shim(const std::string& folder);

}  // namespace maypole::daemon
