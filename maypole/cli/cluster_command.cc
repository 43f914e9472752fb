// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/cluster_command.h"

#include "maypole/base/status.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace maypole::cli {

void add_cluster_flags(CLI::App& app, ClusterFlags& flags) {
  app.add_option("--data-dir", flags.client.data_dir,
                 "The daemon's data directory; default: MAYPOLE_DATA_DIR, else $XDG_STATE_HOME/maypole");
  app.add_option("--address", flags.client.address, "host:port of the daemon; default: MAYPOLE_ADDRESS, else from the data directory");
  app.add_flag("--json", flags.json, "Print JSON");
}

int report_failure(const std::string& name, const absl::Status& status) {
  constexpr int kFailed = 1;
  constexpr int kWrongUse = 2;
  constexpr int kNotNow = 75;
  fmt::print(stderr, "maypole {}: {}\n", name, base::message(status));
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
      return kWrongUse;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return kNotNow;
    default:
      return kFailed;
  }
}

int with_client(const std::string& name, const ClusterFlags& flags, const std::function<absl::StatusOr<int>(daemon::Client& client)>& run) {
  const absl::StatusOr<std::unique_ptr<daemon::Client>> client = daemon::Client::connect(flags.client);
  if (!client.ok()) {
    return report_failure(name, client.status());
  }
  const absl::StatusOr<int> code = run(**client);
  return code.ok() ? *code : report_failure(name, code.status());
}

}  // namespace maypole::cli
