// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the commands show of `GET /v1/cluster`.

#include "maypole/formats/document.h"

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

struct AmountView {
  std::string resource;
  double held = 0;
  double capacity = 0;
};

struct ServerView {
  std::string id;
  std::vector<AmountView> amounts;
  std::vector<std::string> jobs;
  std::string closed;  // why nothing new starts there; empty: it does
};

struct ClusterView {
  std::string policy;
  double slot_s = 0;
  std::string refused;  // the decision that was refused last, or nothing
  std::vector<ServerView> servers;
};

[[nodiscard]] absl::StatusOr<ClusterView> parse_cluster_view(std::string_view json);
[[nodiscard]] absl::StatusOr<ServerView> parse_server_view(std::string_view json);

/// `3 of 8 cpu`, memory with its unit.
[[nodiscard]] std::string amount_text(const AmountView& amount);
/// `s0: 3 of 8 cpu, 1GB of 4GB memory taken by 1, 2; drained by ann`
[[nodiscard]] std::string server_text(const ServerView& server);

}  // namespace maypole::cli
