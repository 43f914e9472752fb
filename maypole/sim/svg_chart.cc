// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace maypole::sim {

namespace {

constexpr double kWidth = 860;
constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kTop = 34;
constexpr double kBottom = 46;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = 250;
constexpr double kLegendColumn = 190;
constexpr double kLegendLine = 18;

// Okabe and Ito, black first left out for text; yellow left out: too light for a line.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"};
// As many as colours: a solid line over another would hide it.
constexpr std::array<const char*, 7> kDashes = {"", "7 3", "2 3", "9 3 2 3", "14 4", "4 2", "9 3 2 3 2 3"};
// Viridis from light to dark: the more, the darker.
constexpr std::array<const char*, 7> kAmounts = {"#fde725", "#90d743", "#35b779", "#21918c", "#31688e", "#443983", "#440154"};
constexpr const char* kWaiting = "#dddddd";

struct Axis {
  double low = 0;
  double high = 1;
  double step = 0.2;
};

/// About five steps of 1, 2 or 5 times a power of ten.
Axis nice(double low, double high) {
  if (!(high > low)) {
    high = low + 1;
  }
  const double raw = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  }
  return {std::floor(low / step) * step, std::ceil(high / step - 1e-9) * step, step};
}

std::string tick(double value) { return fmt::format("{:.6g}", std::abs(value) < 1e-12 ? 0 : value); }

std::string open(double height, const std::string& title) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\" "
      "xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"{3}\" y=\"18\" font-size=\"14\" "
      "font-weight=\"bold\">{2}</text>\n",
      kWidth, height, escaped(title), kLeft);
}

std::string x_axis(const Axis& axis, double end, double bottom, const std::string& label) {
  std::string svg;
  for (double value = axis.low; value <= end + 1e-9 * axis.step; value += axis.step) {
    const double x = kLeft + (value - axis.low) / (end - axis.low) * kPlotWidth;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#444\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
        x, bottom, bottom + 4, bottom + 17, tick(value));
  }
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", kLeft + kPlotWidth / 2, bottom + 34,
                     escaped(label));
  return svg;
}

std::string y_label(const std::string& label, double height) {
  return fmt::format("<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n", kTop + height / 2,
                     escaped(label));
}

std::string frame(double height) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" stroke=\"#444\"/>\n", kLeft, kTop,
                     kPlotWidth, height);
}

/// The colour of an amount: one step a doubling.
std::size_t shade(int amount) {
  std::size_t step = 0;
  while (step + 1 < kAmounts.size() && amount > (1 << step)) {
    ++step;
  }
  return step;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string line_chart_svg(const LineChart& chart) {
  double low_x = INFINITY;
  double high_x = -INFINITY;
  double low_y = chart.y_from_zero ? 0 : INFINITY;
  double high_y = -INFINITY;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      low_x = std::min(low_x, x);
      high_x = std::max(high_x, x);
      low_y = std::min(low_y, y);
      high_y = std::max(high_y, y);
    }
  }
  const bool empty = !(high_x >= low_x);
  if (empty) {
    low_x = 0;
    high_x = 1;
    low_y = 0;
    high_y = 1;
  }
  Axis horizontal = nice(low_x, high_x);
  horizontal.high = std::max(high_x, horizontal.low + horizontal.step);  // the frame ends where the data do
  const Axis vertical = nice(low_y, high_y);
  const auto at_x = [&](double x) { return kLeft + (x - horizontal.low) / (horizontal.high - horizontal.low) * kPlotWidth; };
  const auto at_y = [&](double y) { return kTop + kPlotHeight - (y - vertical.low) / (vertical.high - vertical.low) * kPlotHeight; };
  const auto columns = static_cast<std::size_t>(kPlotWidth / kLegendColumn);
  const double legend_height = kLegendLine * static_cast<double>(std::size_t{(chart.series.size() + columns - 1) / columns}) + 6;
  const double bottom = kTop + kPlotHeight;
  std::string svg = open(bottom + kBottom + legend_height, chart.title);
  for (double value = vertical.low; value <= vertical.high + 1e-9 * vertical.step; value += vertical.step) {
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#e4e4e4\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, kLeft + kPlotWidth, at_y(value), kLeft - 6, at_y(value) + 4, tick(value));
  }
  svg += x_axis(horizontal, horizontal.high, bottom, chart.x_label) + y_label(chart.y_label, kPlotHeight);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    const char* colour = kColours[(series.colour >= 0 ? static_cast<std::size_t>(series.colour) : i) % kColours.size()];
    const char* dash = kDashes[(series.dash >= 0 ? static_cast<std::size_t>(series.dash) : i + i / kColours.size()) % kDashes.size()];
    std::string path;
    double last_y = 0;
    for (const auto& [x, y] : series.points) {
      if (!path.empty() && series.steps) {
        path += fmt::format(" {:.1f},{:.1f}", at_x(x), at_y(last_y));
      }
      path += fmt::format(" {:.1f},{:.1f}", at_x(x), at_y(y));
      last_y = y;
    }
    svg += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"{}\" points=\"{}\"/>\n", colour, dash,
                       path);
    const double x = kLeft + kLegendColumn * static_cast<double>(i % columns);
    const double y = bottom + kBottom + kLegendLine * static_cast<double>(std::size_t{i / columns});
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" stroke-width=\"2.5\" stroke-dasharray=\"{4}\"/>"
        "<text x=\"{5:.1f}\" y=\"{6:.1f}\">{7}</text>\n",
        x, x + 28, y, colour, dash, x + 34, y + 4, escaped(series.name));
  }
  if (empty && !chart.nothing.empty()) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"14\" fill=\"#444\">{}</text>\n",
                       kLeft + kPlotWidth / 2, kTop + kPlotHeight / 2 - 8, escaped(chart.nothing));
  }
  return svg + frame(kPlotHeight) + "</svg>\n";
}

std::string bar_chart_svg(const BarChart& chart) {
  const double rows = std::max<double>(1, static_cast<double>(chart.rows.size()));
  const double row_height = std::clamp(360 / rows, 2.0, 16.0);
  const double height = rows * row_height;
  const double bottom = kTop + height;
  const Axis horizontal = nice(0, chart.x_end);
  const double end = std::max(chart.x_end, horizontal.step);
  std::string svg = open(bottom + kBottom + kLegendLine + 6, chart.title);
  int most = 1;
  for (std::size_t i = 0; i < chart.rows.size(); ++i) {
    const auto& [name, bars] = chart.rows[i];
    const double y = kTop + row_height * static_cast<double>(i);
    svg += fmt::format("<g><title>{}</title>", escaped(name));
    for (const Bar& bar : bars) {
      most = std::max(most, bar.amount);
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>",
                         kLeft + bar.begin / end * kPlotWidth, y, std::max(0.3, (bar.end - bar.begin) / end * kPlotWidth), row_height * 0.9,
                         bar.amount > 0 ? kAmounts[shade(bar.amount)] : kWaiting);
    }
    svg += "</g>\n";
  }
  svg += x_axis(horizontal, end, bottom, chart.x_label) + y_label(chart.y_label, height) + frame(height);
  double x = kLeft;
  const double y = bottom + kBottom - 2;
  const auto entry = [&](const char* colour, const std::string& name) {
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"12\" fill=\"{}\" stroke=\"#888\"/><text x=\"{:.1f}\" "
        "y=\"{:.1f}\">{}</text>\n",
        x, y, colour, x + 18, y + 11, escaped(name));
    x += 34 + 7 * static_cast<double>(name.size());
  };
  entry(kWaiting, "waiting");
  for (std::size_t step = 0; step <= shade(most); ++step) {
    const int high = 1 << step;
    const int low = high / 2 + 1;
    const bool last = step + 1 == kAmounts.size();
    entry(kAmounts[step], last          ? fmt::format("{} or more", low)
                          : low >= high ? fmt::format("{}", high)
                                        : fmt::format("{} to {}", low, high));
  }
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x, y + 11, escaped(chart.amount_label));
  return svg + "</svg>\n";
}

}  // namespace maypole::sim
