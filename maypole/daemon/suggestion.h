// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace maypole::daemon {

/// ": did you mean 'submit'?" where one of the names is like `written`, else nothing.
[[nodiscard]] std::string did_you_mean(std::string_view written, const std::vector<std::string>& names);

}  // namespace maypole::daemon
