// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace maypole::cli {

/// Adds the subcommand `submit`. `command` is `--` and what follows it, or nothing; the returned function runs the subcommand after
/// parsing and gives the exit code.
[[nodiscard]] std::function<int()> add_submit(CLI::App& app, std::vector<std::string> command);

}  // namespace maypole::cli
