// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace maypole::cli {

// Commands about jobs that a daemon has. Each adds its subcommand; the returned function runs it after parsing and gives the exit code.

[[nodiscard]] std::function<int()> add_queue(CLI::App& app);
[[nodiscard]] std::function<int()> add_show(CLI::App& app);
[[nodiscard]] std::function<int()> add_wait(CLI::App& app);
[[nodiscard]] std::function<int()> add_cancel(CLI::App& app);
[[nodiscard]] std::function<int()> add_logs(CLI::App& app);

}  // namespace maypole::cli
