// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace maypole::cli {

/// Adds the subcommand `up`: the daemon, in the foreground. The returned function runs it after parsing and gives the exit code.
[[nodiscard]] std::function<int()> add_up(CLI::App& app);

/// `down`: ends it.
[[nodiscard]] std::function<int()> add_down(CLI::App& app);

/// `shim`, hidden: the process that stays with a worker.
[[nodiscard]] std::function<int()> add_shim(CLI::App& app);

}  // namespace maypole::cli
