// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace maypole::cli {

/// Adds `top`: servers and jobs of a daemon, once a second, until `q`. The returned function runs it after parsing and gives the exit code.
[[nodiscard]] std::function<int()> add_top(CLI::App& app);

}  // namespace maypole::cli
