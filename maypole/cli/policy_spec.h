// SPDX-License-Identifier: Apache-2.0
#pragma once

// A policy as people name it on the command line: NAME[:OPTION...], as in `las:continuous:topology`, so that several variants can stand in
// one list.

#include "maypole/sched/policy.h"

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

struct PolicySpec {
  std::string text;  // as written
  std::string name;
  sched::PolicyOptions options;
};

/// Options: topology, continuous, threshold=SECONDS, ageing=PER_SECOND, published, roundings=N, pivots=N, columns=N, tries=N, nodes=N.
/// Errors name the option and those that exist, or the policies that exist.
[[nodiscard]] absl::StatusOr<PolicySpec> parse_policy(std::string_view text);
/// Comma-separated ones; none may stand there twice.
[[nodiscard]] absl::StatusOr<std::vector<PolicySpec>> parse_policies(std::string_view text);
/// What --help says of the options.
[[nodiscard]] std::string policy_help();

}  // namespace maypole::cli
