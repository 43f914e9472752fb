// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the commands that talk to a daemon share: how they find it, and what their exit codes mean.

#include "maypole/daemon/client.h"

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace maypole::cli {

struct ClusterFlags {
  daemon::ClientOptions client;
  bool json = false;
};

/// --data-dir, --address and --json. The flags must outlive the parser.
void add_cluster_flags(CLI::App& app, ClusterFlags& flags);

/// Prints `maypole NAME: sentence` and gives the exit code: 2 for wrong use, 75 where later may be better, else 1.
[[nodiscard]] int report_failure(const std::string& name, const absl::Status& status);

/// Connects and runs; what it returns is the exit code.
[[nodiscard]] int with_client(const std::string& name, const ClusterFlags& flags,
                              const std::function<absl::StatusOr<int>(daemon::Client& client)>& run);

}  // namespace maypole::cli
