// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/daemon/supervisor.h"

#include <string>

namespace maypole::daemon {

/// The job object of API v1 (formats.md), with exactly its fields.
[[nodiscard]] std::string job_json(const Job& job);

/// The cluster and what is taken of it: {"policy", "slot_s", "servers": [{id, rack, capacity, held, jobs}], "refused"}: the last decision
/// that the checker refused, or null.
[[nodiscard]] std::string cluster_json(const Supervisor& supervisor, double slot_s);

}  // namespace maypole::daemon
