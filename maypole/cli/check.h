// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole check`: decisions against the instance that they were made for, by the schedule checker.

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Declares the subcommand; the function returned runs it and gives the exit code.
[[nodiscard]] std::function<int()> add_check(CLI::App& app);

}  // namespace maypole::cli
