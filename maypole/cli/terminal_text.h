// SPDX-License-Identifier: Apache-2.0
#pragma once

// Text that others wrote, on its way to a terminal.

#include <string>
#include <string_view>

namespace maypole::cli {

/// The text with a question mark for each control character: a name must not move the cursor of who lists it.
[[nodiscard]] std::string printable(std::string_view text);
/// Columns of a line: its characters, of whatever length in UTF-8.
[[nodiscard]] std::size_t columns_of(std::string_view text);
/// The line in at most so many columns; what is cut off is shown by a `~` at its end.
[[nodiscard]] std::string cut_to(std::string_view text, std::size_t columns);

}  // namespace maypole::cli
