// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/model/cluster.h"

#include <absl/status/statusor.h>

namespace maypole::daemon {

/// This machine as a cluster of one server: the cores that this process may use, its memory in bytes, its GPUs where it has any.
[[nodiscard]] absl::StatusOr<model::Cluster> this_machine();

}  // namespace maypole::daemon
