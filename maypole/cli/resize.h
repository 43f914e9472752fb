// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace maypole::cli {

/// Adds `maypole resize RUN N|MIN:MAX`; the returned function carries it out and gives the exit code.
[[nodiscard]] std::function<int()> add_resize(CLI::App& app);

}  // namespace maypole::cli
