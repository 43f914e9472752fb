// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole plan`: what one job would gain, from its profile, before anything is bought.

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Declares the subcommand; the function returned runs it and gives the exit code.
[[nodiscard]] std::function<int()> add_plan(CLI::App& app);

}  // namespace maypole::cli
