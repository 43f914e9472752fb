// SPDX-License-Identifier: Apache-2.0
#pragma once

// Numbers as files hold them, whatever the machine's locale.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace maypole::formats {

/// The finite number that the whole text spells (`12`, `-0.5`, `1e9`); none for anything else, infinities and NaN among it.
[[nodiscard]] std::optional<double> parse_number(std::string_view text);
/// The same for integers; `12.0` is none.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_unsigned(std::string_view text);

/// The shortest text that parse_number() turns into the same bits. The value must be finite.
[[nodiscard]] std::string format_number(double value);

}  // namespace maypole::formats
