// SPDX-License-Identifier: Apache-2.0
#pragma once

// Charts as SVG text that stands inside a page: lines over a common scale, and bars in rows. Colours are told apart by people who do not
// see red and green alike (Okabe and Ito's eight; viridis for amounts), and lines by their dashes too.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maypole::sim {

/// `&`, `<`, `>` and quotes as entities.
[[nodiscard]] std::string escaped(std::string_view text);

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x
  bool steps = false;                             // y holds until the next x
  int colour = -1;                                // series of one colour belong together; -1: each has its own
  int dash = -1;                                  // 0: a solid line; -1: each its own
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool y_from_zero = true;
  std::string nothing = {};  // what stands in the chart where no series has a point
};
/// An empty series has its place in the legend and no line.
[[nodiscard]] std::string line_chart_svg(const LineChart& chart);

struct Bar {
  double begin = 0;
  double end = 0;
  int amount = 0;  // 0: there, with nothing (grey)
};

struct BarChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::string amount_label;
  double x_end = 0;
  std::vector<std::pair<std::string, std::vector<Bar>>> rows;  // name, bars; from the top
};
[[nodiscard]] std::string bar_chart_svg(const BarChart& chart);

}  // namespace maypole::sim
