// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace maypole::cli {

/// `maypole agent`, started by `maypole run` once per host entry: starts the workers of its host, passes their output on, and leaves
/// nothing of them behind. Speaks messages.h on standard input and output; its own errors go to standard error. Returns the exit code.
[[nodiscard]] int run_agent();

}  // namespace maypole::cli
