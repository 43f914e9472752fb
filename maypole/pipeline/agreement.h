// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checks that all ranks describe the same thing, and says where they differ when they do not.

#include "maypole/base/units.h"
#include "maypole/comm/communicator.h"

#include <absl/status/status.h>

#include <string>
#include <vector>

namespace maypole::pipeline {

/// Collective. Every rank passes its description, one fact per line. OK when all are equal; else kFailedPrecondition on every rank,
/// with the first line in which the lowest differing rank differs from rank 0.
[[nodiscard]] absl::Status check_agreement(comm::Communicator& communicator, const std::vector<std::string>& lines,
                                           base::Nanoseconds timeout);

}  // namespace maypole::pipeline
