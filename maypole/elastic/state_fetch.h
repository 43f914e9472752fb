// SPDX-License-Identifier: Apache-2.0
#pragma once

// Fetches a state from all that hold it. Each source is asked for the next piece whenever it has given one, so a fast one gives more. What
// a source that is lost has not given is asked of the others; what is here already, from a fetch that broke off for one, is not sent again.

#include "maypole/base/units.h"
#include "maypole/elastic/state_pieces.h"
#include "maypole/net/proof.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace maypole::elastic {

struct FetchOptions {
  net::Credentials credentials;
  std::uint32_t epoch = 0;
  std::uint32_t rank = 0;                               // who fetches
  std::string interface;                                // by which sources are reached; "": the one that routes to them
  base::Nanoseconds silence = std::chrono::seconds(2);  // a source that sends nothing for so long is lost
};

struct FetchSource {
  std::uint32_t rank = 0;
  std::string address;  // "address:port"
};

struct FetchReport {
  std::vector<std::uint64_t> bytes_from;  // [source]
  std::uint64_t bytes_kept = 0;           // that were here
  std::vector<std::string> lost;          // why a source gave no more, one line each
};

/// Fills `into`. Blocks until all of it is here; kUnavailable: all sources are lost, with the reason of the last.
[[nodiscard]] absl::StatusOr<FetchReport> fetch_state(const FetchOptions& options, const std::vector<FetchSource>& sources,
                                                      const StatePieces& into);

}  // namespace maypole::elastic
