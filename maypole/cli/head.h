// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// `maypole head FOLDER`: the head of one elastic job of the daemon (daemon/head_messages.h). A shim starts it in place of a worker.
[[nodiscard]] std::function<int()> add_head(CLI::App& app);

}  // namespace maypole::cli
