// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/daemon/supervisor.h"

#include <string>

namespace maypole::daemon {

/// The job object of API v1 (formats.md), with exactly its fields.
[[nodiscard]] std::string job_json(const Job& job);
/// The same at the end of a text, which may hold ten thousand of them.
void append_job_json(const Job& job, std::string& text);

/// A server and what is taken of it: {id, rack, closed, capacity, held, jobs}. `closed`: why nothing new starts there, or null.
[[nodiscard]] std::string server_json(const Supervisor& supervisor, model::ServerId id);

/// The cluster and what is taken of it: {"policy", "slot_s", "servers": [server, ...], "refused"}: the last
/// decision that the checker refused, or null.
[[nodiscard]] std::string cluster_json(const Supervisor& supervisor, double slot_s);

}  // namespace maypole::daemon
