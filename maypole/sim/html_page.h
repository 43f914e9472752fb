// SPDX-License-Identifier: Apache-2.0
#pragma once

// One self-contained page: what is wider than the screen scrolls by itself, so that text and charts stay readable on a telephone.

#include <string>
#include <string_view>

namespace maypole::sim {

/// `title` is text, `body` is HTML.
[[nodiscard]] std::string html_page(std::string_view title, std::string_view body);
/// A part that scrolls sideways where it is too wide.
[[nodiscard]] std::string html_wide(std::string_view html);

}  // namespace maypole::sim
