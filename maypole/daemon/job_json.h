// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/daemon/supervisor.h"

#include <string>

namespace maypole::daemon {

/// The job object of API v1 (formats.md), with exactly its fields.
[[nodiscard]] std::string job_json(const Job& job);
/// The same at the end of a text, which may hold ten thousand of them.
void append_job_json(const Job& job, std::string& text);

}  // namespace maypole::daemon
