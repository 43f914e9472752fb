// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole replay`: a dumped decision, asked again.

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Declares the subcommand; the function returned runs it and gives the exit code.
[[nodiscard]] std::function<int()> add_replay(CLI::App& app);

}  // namespace maypole::cli
