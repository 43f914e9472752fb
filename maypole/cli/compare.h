// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole compare`: several policies over the same workload, as a table and a report.

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Declares the subcommand; the function returned runs it and gives the exit code.
[[nodiscard]] std::function<int()> add_compare(CLI::App& app);

}  // namespace maypole::cli
