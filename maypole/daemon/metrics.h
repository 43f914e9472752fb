// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/daemon/supervisor.h"

#include <string>

namespace maypole::daemon {

/// Gauges in Prometheus' text format: jobs by state, and of each server what it has and what is taken. No series names a job, so none
/// outlives one.
[[nodiscard]] std::string metrics_text(const Supervisor& supervisor);

}  // namespace maypole::daemon
