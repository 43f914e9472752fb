// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bars in groups, as SVG: one group a case, one bar a series.

#include <string>
#include <utility>
#include <vector>

namespace maypole::cli {

struct GroupedBars {
  std::string title;
  std::string y_label;
  std::vector<std::string> series;
  std::vector<std::pair<std::string, std::vector<double>>> groups;  // name, one value a series
};
[[nodiscard]] std::string grouped_bars_svg(const GroupedBars& bars);

}  // namespace maypole::cli
