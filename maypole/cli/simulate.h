// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole simulate`: one policy over a workload, in virtual time.

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Declares the subcommand; the function returned runs it and gives the exit code.
[[nodiscard]] std::function<int()> add_simulate(CLI::App& app);

}  // namespace maypole::cli
