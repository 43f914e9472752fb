// SPDX-License-Identifier: Apache-2.0
#pragma once

// The whole program `maypole`, all its commands, as one function: for main(), and for programs that add something first
// (examples/own_policy.cc).

namespace maypole::cli {

/// Runs the command that the arguments name; returns the exit code. Call once, from main().
[[nodiscard]] int run_program(int argc, char** argv);

}  // namespace maypole::cli
