// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where workers go: `--hosts name[=address]:slots,...` and `-n`.

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

/// One entry of --hosts. Workers of one entry share a host; so names are unique in the list.
struct HostEntry {
  std::string name;
  std::string address;  // "" = none was written
  int slots = 1;
};

/// Parses `name[=address]:slots,...`; an IPv6 address stands in brackets. The error names the entry and what it should look like.
[[nodiscard]] absl::StatusOr<std::vector<HostEntry>> parse_hosts(std::string_view text);

/// Ranks of one host entry: first_rank .. first_rank + num_workers - 1.
struct HostWorkers {
  HostEntry host;
  int first_rank = 0;
  int num_workers = 0;
};

/// Fills the slots in list order with `num_workers` workers, or all slots when it is 0. Entries that get none are left out.
/// Without entries: `num_workers` (or one) workers on "localhost".
[[nodiscard]] absl::StatusOr<std::vector<HostWorkers>> place_workers(const std::vector<HostEntry>& hosts, int num_workers);

/// Tells whether the entry means the machine that we run on: `localhost`, its own host name, or a loopback address.
[[nodiscard]] bool is_this_machine(const HostEntry& host);

/// Tells whether `address` is `localhost` or a loopback address in numbers.
[[nodiscard]] bool is_loopback(std::string_view address);

}  // namespace maypole::cli
