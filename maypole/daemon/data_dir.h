// SPDX-License-Identifier: Apache-2.0
#pragma once

// The folder in which a daemon keeps its store, its jobs' files, its address and its owner's token. One daemon at a time has it.

#include "maypole/base/fd.h"

#include <absl/status/statusor.h>

#include <string>

namespace maypole::daemon {

/// Makes the folder, open to its owner alone, or takes one that is there as it is; it is the caller's for as long as the result lives.
/// Errors: kFailedPrecondition: another daemon has it, or other users may write there; kInvalidArgument: it cannot be made.
[[nodiscard]] absl::StatusOr<base::Fd> lock_data_dir(const std::string& data_dir);

/// Whether a daemon has the folder now. Asking takes nothing, so it keeps none from starting.
[[nodiscard]] bool daemon_has(const std::string& data_dir);

}  // namespace maypole::daemon
