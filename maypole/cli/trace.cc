// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/trace.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/page.h"
#include "maypole/cli/recorded_timeline.h"
#include "maypole/cli/scenario.h"
#include "maypole/cli/whole_number.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace maypole::cli {
namespace {

struct Written {
  std::string file;
  std::string html;
  std::size_t iterations = 2;
  bool json = false;
};

std::string json_of(const RecordedTimeline& timeline) {
  using formats::format_number;
  std::string text = "{\"ranks\": [";
  std::string_view before = "\n";
  for (const auto& [number, rank] : timeline.ranks) {
    const RecordedIterations one = timeline.iterations(number);
    text += fmt::format(
        "{}{{\"rank\": {}, \"name\": {}, \"iterations\": {}, \"iteration_s\": {}, \"forward_s\": {}, \"backward_s\": {}, \"exposed_s\": "
        "{}, "
        "\"reduce_scatter_s\": {}, \"all_gather_s\": {}}}",
        before, number, formats::json_string(rank.name), one.count, format_number(one.iteration_s), format_number(one.forward_s),
        format_number(one.backward_s), format_number(one.exposed_s), format_number(one.reduce_scatter_s), format_number(one.all_gather_s));
    before = ",\n";
  }
  return text + "\n]}\n";
}

Table table_of(const RecordedTimeline& timeline) {
  Table table{{"rank", "iterations", "iteration", "forward", "backward", "waited", "RS in motion", "AG in motion"}, {}};
  for (const auto& [number, rank] : timeline.ranks) {
    const RecordedIterations one = timeline.iterations(number);
    table.rows.push_back({rank.name, fmt::format("{}", one.count), base::format_seconds(one.iteration_s),
                          base::format_seconds(one.forward_s), base::format_seconds(one.backward_s), base::format_seconds(one.exposed_s),
                          base::format_seconds(one.reduce_scatter_s), base::format_seconds(one.all_gather_s)});
  }
  return table;
}

absl::Status trace(const Written& written) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, formats::read_text_file(written.file));
  MAYPOLE_ASSIGN_OR_RETURN(const RecordedTimeline timeline, parse_timeline(text, formats::file_name(written.file)));
  if (!written.html.empty()) {
    const std::string title = fmt::format("The last iterations of {}", formats::file_name(written.file));
    const std::string body =
        "<p>Medians of an iteration, from one begin of backward to the next; forward and backward without the time that they "
        "waited.</p>\n" +
        html_table(table_of(timeline), 1) + html_figure(timeline_svg(timeline.picture(title, written.iterations)));
    MAYPOLE_RETURN_IF_ERROR(formats::write_text_file(written.html, html_page(title, body)));
  }
  fmt::print("{}", written.json ? json_of(timeline) : text_table(table_of(timeline), 1));
  return absl::OkStatus();
}

}  // namespace

std::function<int()> add_trace(CLI::App& app) {
  CLI::App* command = app.add_subcommand("trace", "What a recorded timeline shows: medians, and a picture of its last iterations");
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  command->add_option("FILE", written->file, "What `maypole run --timeline` wrote")->required();
  command->add_option("--html", written->html, "Write one self-contained HTML page with the picture");
  command->add_option("--iterations", written->iterations, "How many iterations the picture shows")
      ->capture_default_str()
      ->check(whole_number(1, 1000));
  command->add_flag("--json", written->json, "Print one JSON object");
  return [written] {
    const absl::Status status = trace(*written);
    return status.ok() ? 0 : fail("trace", status);
  };
}

}  // namespace maypole::cli
