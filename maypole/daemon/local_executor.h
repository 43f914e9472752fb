// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/daemon/executor.h"

#include <memory>
#include <string>

namespace maypole::daemon {

struct LocalExecutorOptions {
  std::string folder;    // of worker_files.h: jobs/ of the data directory
  std::string identity;  // of the store
  std::string program;   // `maypole`, whose subcommand `shim` is started
};

/// Workers are processes of this machine, each under a shim of its own (shim.h). They outlive this object.
[[nodiscard]] std::unique_ptr<Executor> make_local_executor(const LocalExecutorOptions& options);

}  // namespace maypole::daemon
