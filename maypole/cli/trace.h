// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole trace`: a timeline that `maypole run --timeline` recorded, as the picture that `maypole plan` draws.

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Declares the subcommand; the function returned runs it and gives the exit code.
[[nodiscard]] std::function<int()> add_trace(CLI::App& app);

}  // namespace maypole::cli
