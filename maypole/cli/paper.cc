// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/paper.h"

#include "maypole/base/status.h"
#include "maypole/cli/paper_dear.h"
#include "maypole/cli/progress_bar.h"
#include "maypole/cli/scenario.h"
#include "maypole/cli/whole_number.h"
#include "maypole/sim/paper_figures.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace maypole::cli {

namespace {

struct Written {
  std::string paper = "gadget";
  sim::FigureOptions options;
  std::size_t searches = 20;
  std::string html;
  bool json = false;
};

std::string figure_json(const sim::Figure& figure, int number) {
  nlohmann::ordered_json json;
  json["figure"] = number;
  json["title"] = figure.title;
  json["x_name"] = figure.x_name;
  json["y_name"] = figure.y_name;
  json["x"] = figure.x;
  json["curves"] = nlohmann::ordered_json::array();
  for (const sim::FigureCurve& curve : figure.curves) {
    json["curves"].push_back({{"name", curve.name}, {"ours", curve.ours}, {"published", curve.published}});
  }
  json["remarks"] = figure.remarks;
  return json.dump(2);
}

absl::Status paper(Written& written) {
  if (written.paper == "dear") {
    return paper_dear({.seeds = written.searches, .html = written.html, .json = written.json});
  }
  if (written.options.figure == 0) {
    return base::error(absl::StatusCode::kInvalidArgument, "--figure is missing: gadget has the figures 4, 5, 6 and 7");
  }
  std::optional<formats::OutputFile> page;
  if (!written.html.empty()) {
    MAYPOLE_ASSIGN_OR_RETURN(page, open_for("--html", written.html));
  }
  ProgressBar bar(fmt::format("figure {}", written.options.figure));
  written.options.on_progress = [&](double share) { bar.show(share, ""); };
  MAYPOLE_ASSIGN_OR_RETURN(const sim::Figure figure, sim::redraw_figure(written.options));
  if (page) {
    page->write(sim::figure_html(figure));
    MAYPOLE_RETURN_IF_ERROR(for_option("--html", page->close()));
  }
  fmt::print("{}\n", written.json ? figure_json(figure, written.options.figure) : sim::figure_table(figure));
  return absl::OkStatus();
}

/// Refuses what the other paper's evaluation would have taken.
absl::Status check_options(const CLI::App& command, const std::string& paper) {
  const std::vector<std::string> foreign =
      paper == "dear" ? std::vector<std::string>{"--figure", "--seeds", "--policy"} : std::vector<std::string>{"--searches"};
  for (const std::string& name : foreign) {
    if (command.count(name) > 0) {
      return base::error(absl::StatusCode::kInvalidArgument, "{} is an option of {}, not of {}", name, paper == "dear" ? "gadget" : "dear",
                         paper);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::function<int()> add_paper(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "paper", "Draw a figure of the GADGET paper again beside the published values, or the evaluation of DeAR's from modelled profiles");
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  written->options.figure = 0;                 // none given
  command->add_option("PAPER", written->paper, "gadget or dear")->required()->check(CLI::IsMember({"gadget", "dear"}));
  command->add_option("--figure", written->options.figure, "Of gadget: 4, 5, 6 or 7")->check(CLI::IsMember({4, 5, 6, 7}));
  command->add_option("--seeds", written->options.seeds, "Instances that each value is the mean of")
      ->capture_default_str()
      ->check(whole_number(1, 1000));
  command->add_option("--policy", written->options.policy,
                      "Whose curve stands for GADGET; default: gadget-paper, in figure 4 with gadget beside it");
  command->add_option("--searches", written->searches, "Of dear: seeds of each search for fusion sizes")
      ->capture_default_str()
      ->check(whole_number(1, 1000));
  command->add_option("--html", written->html, "Write a page with the figure");
  command->add_flag("--json", written->json, "Print one JSON object");
  return [written, command] {
    absl::Status status = check_options(*command, written->paper);
    if (status.ok()) {
      status = paper(*written);
    }
    return status.ok() ? 0 : fail("paper", status);
  };
}

}  // namespace maypole::cli
