// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writing JSON by hand: numbers in their shortest exact form, in the order that we choose.

#include <optional>
#include <string>
#include <string_view>

namespace maypole::formats {

/// The text in quotes, escaped; it must be UTF-8.
[[nodiscard]] std::string json_string(std::string_view text);
/// `null` where there is none.
[[nodiscard]] std::string json_number(std::optional<double> value);

}  // namespace maypole::formats
