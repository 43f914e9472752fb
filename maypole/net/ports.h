// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/fd.h"

#include <absl/status/statusor.h>

#include <string>

namespace maypole::net {

/// A socket that listens, and its port.
struct BoundPort {
  base::Fd socket;
  int port = 0;
};

/// Listens on the numeric `address` ("" = every address of this machine) at a free port that the kernel chooses.
[[nodiscard]] absl::StatusOr<BoundPort> listen_on(const std::string& address);

/// Finds a port that is free now, for a program that binds it itself. It lies below the range from which the kernel gives ports to
/// others, so that it most likely stays free until then.
[[nodiscard]] absl::StatusOr<int> find_free_port();

}  // namespace maypole::net
