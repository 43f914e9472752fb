// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/daemon/core_choice.h"
#include "maypole/daemon/executor.h"

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace maypole::daemon {

/// The words that start a program's words on a server.
using Launcher = std::function<absl::StatusOr<std::vector<std::string>>(const std::vector<std::string>& command)>;
/// By server id, of those where a program is not simply started.
using Launchers = std::map<std::string, Launcher>;

struct LocalExecutorOptions {
  std::string folder;    // of worker_files.h: jobs/ of the data directory
  std::string identity;  // of the store
  std::string program;   // `maypole`, whose subcommand `shim` is started
  ServerCores cores;     // what a server's workers run on, where servers divide the machine; else a quota holds them where there is one
  bool hold_cores = false;
  Launchers launchers;  // they must lead to this machine (network namespaces): its processes are watched, its files shared
};

/// Workers are processes of this machine, each under a shim of its own (shim.h). They outlive this object.
[[nodiscard]] std::unique_ptr<Executor> make_local_executor(const LocalExecutorOptions& options);

}  // namespace maypole::daemon
