// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole convert`: a workload of any known format into ours.

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Declares the subcommand; the function returned runs it and gives the exit code.
[[nodiscard]] std::function<int()> add_convert(CLI::App& app);

}  // namespace maypole::cli
