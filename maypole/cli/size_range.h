// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/elastic/coordinator.h"

#include <absl/status/statusor.h>

#include <string_view>

namespace maypole::cli {

/// Parses how many workers there may be: `6`, or a range `2:6`. The error says what it should look like.
[[nodiscard]] absl::StatusOr<elastic::SizeRange> parse_size_range(std::string_view text);

}  // namespace maypole::cli
