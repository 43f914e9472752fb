// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/timeline_picture.h"

#include "maypole/sim/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace maypole::cli {
namespace {

constexpr double kWidth = 1060;
constexpr double kLeft = 130;
constexpr double kPlotWidth = kWidth - kLeft - 20;
constexpr double kTop = 34;
constexpr double kRowHeight = 26;
constexpr double kRowGap = 6;
constexpr double kCharacter = 7;  // width of a digit

struct Look {
  PictureColour colour;
  const char* fill;
  const char* text;
  const char* name;
};
// Okabe and Ito's colours; waiting is grey.
constexpr std::array kLooks = {Look{PictureColour::kForward, "#56b4e9", "#000", "forward"},
                               Look{PictureColour::kBackward, "#0072b2", "#fff", "backward"},
                               Look{PictureColour::kReduceScatter, "#d55e00", "#fff", "reduce-scatter"},
                               Look{PictureColour::kAllGather, "#009e73", "#fff", "all-gather"},
                               Look{PictureColour::kUpdate, "#cc79a7", "#000", "update"},
                               Look{PictureColour::kWait, "#d9d9d9", "#000", "compute waits for a group"}};

const Look& look_of(PictureColour colour) { return *std::ranges::find(kLooks, colour, &Look::colour); }

/// About eight steps of 1, 2 or 5 times a power of ten.
double nice_step(double length) {
  const double raw = length / 8;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) {
      return factor * power;
    }
  }
  return 10 * power;
}

}  // namespace

std::string timeline_svg(const TimelinePicture& picture) {
  const double length = std::max(picture.end_s - picture.begin_s, 1e-9);
  const double bottom = kTop + static_cast<double>(picture.rows.size()) * (kRowHeight + kRowGap);
  const auto at = [&](double s) { return kLeft + std::clamp((s - picture.begin_s) / length, 0.0, 1.0) * kPlotWidth; };
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\" "
      "xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n<text x=\"12\" y=\"18\" font-size=\"14\" font-weight=\"bold\">{2}</text>\n",
      kWidth, bottom + 66, sim::escaped(picture.title));
  const double step = nice_step(length);
  for (int i = 0; static_cast<double>(i) * step <= length * (1 + 1e-9); ++i) {
    const double s = static_cast<double>(i) * step;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\" stroke=\"#e4e4e4\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" "
        "text-anchor=\"middle\">{4:.4g}</text>\n",
        at(picture.begin_s + s), kTop, bottom, bottom + 14, s * 1e3);
  }
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">ms</text>\n", kLeft - 8, bottom + 14);
  double y = kTop;
  for (const auto& [name, spans] : picture.rows) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8, y + kRowHeight * 0.65,
                       sim::escaped(name));
    for (const PictureSpan& span : spans) {
      const double x = at(span.begin_s);
      const double width = at(span.end_s) - x;
      if (width <= 0) {
        continue;
      }
      const Look& look = look_of(span.colour);
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\" "
          "stroke-width=\"0.4\"><title>{}</title></rect>",
          x, y, std::max(width, 0.3), kRowHeight, look.fill, sim::escaped(span.title));
      const std::string label = fmt::format("{}", span.group);
      if (span.group >= 0 && width > kCharacter * static_cast<double>(label.size()) + 4) {
        svg += fmt::format(
            "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\" font-size=\"11\" pointer-events=\"none\">{}</text>",
            x + width / 2, y + kRowHeight * 0.65, look.text, label);
      }
      svg += "\n";
    }
    y += kRowHeight + kRowGap;
  }
  double x = kLeft;
  for (const Look& look : kLooks) {
    svg += fmt::format(
        "<rect x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"14\" height=\"12\" fill=\"{2}\"/><text x=\"{3:.1f}\" y=\"{4:.1f}\">{5}</text>\n", x,
        bottom + 32, look.fill, x + 19, bottom + 42, look.name);
    x += 42 + kCharacter * static_cast<double>(std::string_view(look.name).size());
  }
  return svg + "</svg>\n";
}

}  // namespace maypole::cli
