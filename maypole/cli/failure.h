// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/net/child_process.h"

#include <functional>
#include <string>
#include <vector>

namespace maypole::cli {

/// A rank that did not end well, or a host that was lost (rank -1).
struct Failure {
  int rank = -1;
  std::string host;
  net::ExitStatus status{};
  double seconds = 0;    // after the start of the workers
  std::string reason{};  // a sentence where there is more to say than the status
};

/// Picks the failure that began it all, from failures in the order in which they were seen. A rank that fails because its peer is lost
/// may be faster to end than the peer itself; so where a rank's last errors say that "rank K ... lost" and K failed too, K is to blame.
/// `last_errors` gives what a rank wrote last. Needs at least one failure.
[[nodiscard]] const Failure& first_cause(const std::vector<Failure>& failures, const std::function<std::string(int)>& last_errors);

/// Of the ranks that the launcher had to end, the one that `cause`'s last errors say is lost: it was stopped, or hangs. Null: none of them.
[[nodiscard]] const Failure* silent_rank(const Failure& cause, const std::vector<Failure>& ended_by_us,
                                         const std::function<std::string(int)>& last_errors);

/// `rank 1 on host s0 failed with exit code 3 after 12.3 s`, without a line end.
[[nodiscard]] std::string describe(const Failure& failure);

}  // namespace maypole::cli
