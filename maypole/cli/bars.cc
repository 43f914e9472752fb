// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/bars.h"

#include "maypole/sim/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace maypole::cli {
namespace {

constexpr double kWidth = 1060;
constexpr double kLeft = 70;
constexpr double kTop = 34;
constexpr double kHeight = 240;
// Okabe and Ito.
constexpr std::array kColours = {"#999999", "#56b4e9", "#0072b2", "#cc79a7", "#d55e00", "#009e73", "#e69f00"};

double nice_top(double value) {
  double power = 1;
  while (power * 10 <= value) {
    power *= 10;
  }
  while (power > value) {
    power /= 10;
  }
  for (const double factor : {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0}) {
    if (factor * power >= value) {
      return factor * power;
    }
  }
  return 10 * power;
}

}  // namespace

std::string grouped_bars_svg(const GroupedBars& bars) {
  double highest = 1e-9;
  for (const auto& [name, values] : bars.groups) {
    highest = std::max(highest, values.empty() ? 0 : std::ranges::max(values));
  }
  const double top = nice_top(highest);
  const double bottom = kTop + kHeight;
  const double group_width = (kWidth - kLeft - 20) / static_cast<double>(std::max<std::size_t>(1, bars.groups.size()));
  const double bar_width = group_width * 0.8 / static_cast<double>(std::max<std::size_t>(1, bars.series.size()));
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\" "
      "xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n<text x=\"{3}\" y=\"18\" font-size=\"14\" font-weight=\"bold\">{2}</text>\n"
      "<text transform=\"translate(14 {4:.0f}) rotate(-90)\" text-anchor=\"middle\">{5}</text>\n",
      kWidth, bottom + 54, sim::escaped(bars.title), kLeft, kTop + kHeight / 2, sim::escaped(bars.y_label));
  for (int i = 0; i <= 5; ++i) {
    const double y = bottom - kHeight * i / 5;
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e4e4e4\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.3g}</text>\n",
        kLeft, kWidth - 20, y, y, kLeft - 6, y + 4, top * i / 5);
  }
  for (std::size_t g = 0; g < bars.groups.size(); ++g) {
    const auto& [name, values] = bars.groups[g];
    const double x = kLeft + group_width * (static_cast<double>(g) + 0.1);
    for (std::size_t s = 0; s < values.size(); ++s) {
      const double height = kHeight * values[s] / top;
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>{}: {} {:.4g}</title></rect>\n",
          x + bar_width * static_cast<double>(s), bottom - height, bar_width * 0.94, height, kColours[s % kColours.size()],
          sim::escaped(name), sim::escaped(bars.series[s]), values[s]);
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x + group_width * 0.4, bottom + 16,
                       sim::escaped(name));
  }
  double x = kLeft;
  for (std::size_t s = 0; s < bars.series.size(); ++s) {
    svg +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"12\" fill=\"{}\"/><text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                    x, bottom + 30, kColours[s % kColours.size()], x + 19, bottom + 40, sim::escaped(bars.series[s]));
    x += 46 + 7 * static_cast<double>(bars.series[s].size());
  }
  return svg + "</svg>\n";
}

}  // namespace maypole::cli
