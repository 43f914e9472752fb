// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace maypole::cli {

/// Adds `cluster`: servers, what they have and what is taken. The returned function runs it after parsing and gives the exit code.
[[nodiscard]] std::function<int()> add_cluster(CLI::App& app);
[[nodiscard]] std::function<int()> add_dashboard(CLI::App& app);
/// `drain` and `undrain`, by their names.
[[nodiscard]] std::function<int()> add_drain(CLI::App& app, const std::string& name);
/// `token create|list|revoke`.
[[nodiscard]] std::function<int()> add_token(CLI::App& app);

}  // namespace maypole::cli
