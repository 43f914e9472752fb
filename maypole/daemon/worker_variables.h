// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/daemon/executor.h"

#include <string>
#include <vector>

namespace maypole::daemon {

/// Where the ranks of an epoch meet.
struct MeetingPoint {
  std::string secret;
  int rendezvous_port = 0;  // 0: the shims find out (meeting.h)
  int rendezvous_fd = -1;   // the listening socket that rank 0 inherits
  int master_port = 0;
};

/// Whole environments, [rank]: `own`, the job's on top, and what says who the worker is (formats.md, "Environment of a worker").
/// Variables of a job around the daemon are dropped, and so are the daemon's own token and address.
[[nodiscard]] std::vector<std::vector<std::string>> worker_variables(const EpochOrder& order, const MeetingPoint& meeting,
                                                                     const std::vector<std::string>& own, int cores);

}  // namespace maypole::daemon
