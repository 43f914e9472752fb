// SPDX-License-Identifier: Apache-2.0
#pragma once

// The figures of GADGET's experiments (4 to 7), run again and set beside what was published. The published values are read from the
// figures (4 and 7: from their vector graphics, about +-5 and +-0.005; 5 and 6: printed in them).

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

namespace maypole::sim {

struct FigureCurve {
  std::string name;
  std::vector<double> ours;       // [x]
  std::vector<double> published;  // [x]; empty where the paper has no such curve
};

struct Figure {
  std::string title;
  std::string x_name;
  std::string y_name;
  std::vector<double> x;
  std::vector<FigureCurve> curves;
  std::vector<std::string> remarks;  // where and why ours differ, a sentence or two each
};

struct FigureOptions {
  int figure = 4;      // 4 to 7
  int seeds = 3;       // instances that each value is the mean of
  std::string policy;  // whose curve is GADGET's; empty: gadget-paper (figure 4: gadget beside it)
  /// Called between runs with the share that is done.
  std::function<void(double)> on_progress = nullptr;
};

/// Error (kInvalidArgument): no such figure, or no such policy.
[[nodiscard]] absl::StatusOr<Figure> redraw_figure(const FigureOptions& options);

[[nodiscard]] std::string figure_table(const Figure& figure);
/// A page with the curves, published ones beside ours, and the table.
[[nodiscard]] std::string figure_html(const Figure& figure);

}  // namespace maypole::sim
