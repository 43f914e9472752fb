// SPDX-License-Identifier: Apache-2.0
#pragma once

// `maypole paper`: the figures of the GADGET paper, drawn again beside the published values.

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Declares the subcommand; the function returned runs it and gives the exit code.
[[nodiscard]] std::function<int()> add_paper(CLI::App& app);

}  // namespace maypole::cli
