// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a browser is shown: the dashboard's files, which are part of the program, and what stands in for them before a login.

#include "maypole/daemon/api.h"

#include <optional>
#include <string>
#include <string_view>

namespace maypole::daemon {

/// A file of the dashboard (dashboard/, put into the program by CMake).
struct DashboardFile {
  std::string_view path;  // `/app.js`
  std::string_view bytes;
};
[[nodiscard]] const DashboardFile* dashboard_file(std::string_view path);

/// The page at a path, or none. A stranger is shown how to log in, and no file.
[[nodiscard]] std::optional<Response> dashboard_page(const std::string& path, bool logged_in);
/// What the link of a login leads to; an empty session: the link was of no use.
[[nodiscard]] Response login_page(const std::string& session);
[[nodiscard]] std::string login_path(const std::string& key);

}  // namespace maypole::daemon
