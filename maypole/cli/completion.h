// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace maypole::cli {

/// A script for bash that completes the program's commands, their options, and what a daemon has: jobs and servers.
[[nodiscard]] std::string bash_completion(const CLI::App& app);

/// Adds `completion bash`, and what its script asks for. The returned function runs it after parsing and gives the exit code.
[[nodiscard]] std::function<int()> add_completion(CLI::App& app);

}  // namespace maypole::cli
