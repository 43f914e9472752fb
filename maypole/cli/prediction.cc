// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/prediction.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/job_report.h"
#include "maypole/cli/page.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"
#include "maypole/overlap/contention.h"
#include "maypole/overlap/cut_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

namespace maypole::cli {
namespace {

constexpr std::size_t kBlockBytes = 256 << 10;
constexpr double kSameModel = 0.01;  // how far the bytes of profile and report may lie apart

/// The groups of the report, over the profile's tensors.
absl::StatusOr<std::vector<overlap::GroupLoad>> loads_of(const model::Profile& profile, const MeasuredRun& run) {
  MAYPOLE_ASSIGN_OR_RETURN(const overlap::CutLine line, overlap::CutLine::make(profile, kBlockBytes));
  double bytes = 0;
  for (const pipeline::GroupReport& group : run.report.groups) {
    bytes += static_cast<double>(group.bytes);
  }
  if (std::abs(bytes - line.bytes()) > kSameModel * line.bytes()) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "{}: its groups hold {}, the profile's tensors {}: this is a run of another model", run.file,
                       base::format_bytes(bytes), base::format_bytes(line.bytes()));
  }
  std::vector<overlap::GroupLoad> loads;
  double before = 0;
  for (const pipeline::GroupReport& group : run.report.groups) {
    const std::size_t first = std::min(line.furthest(0, before + 0.5), line.num_blocks() - 1);
    loads.push_back(line.block(first));
    loads.back().bytes = static_cast<double>(group.bytes);
    before += loads.back().bytes;
  }
  return loads;
}

overlap::IterationSetting setting_of(const model::Profile& profile, const overlap::Network& network, const MeasuredRun& run) {
  overlap::IterationSetting setting = overlap::setting_of(profile, network, static_cast<std::size_t>(run.report.world_size));
  setting.update = run.report.update == "sharded" ? overlap::UpdateMode::kSharded : overlap::UpdateMode::kReplicated;
  return setting;
}

}  // namespace

absl::StatusOr<MeasuredRun> read_measured_run(const std::string& path) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, formats::read_text_file(path));
  absl::StatusOr<pipeline::Report> report = parse_report(text);
  const std::string file = formats::file_name(path);
  if (!report.ok()) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}: this is no report of `maypole run --report`: {}", file,
                       base::message(report.status()));
  }
  if (report->world_size < 1 || !(report->iteration_s > 0)) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}: {} workers and iterations of {} s: nothing was measured", file,
                       report->world_size, report->iteration_s);
  }
  return MeasuredRun{file, *std::move(report)};
}

absl::StatusOr<Prediction> predict(const model::Profile& profile, const overlap::Network& network, const MeasuredRun& run) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::unique_ptr<overlap::Schedule> schedule, overlap::make_schedule(run.report.schedule));
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<overlap::GroupLoad> loads, loads_of(profile, run));
  const double predicted_s = overlap::simulate(*schedule, loads, setting_of(profile, network, run)).iteration_s;
  return Prediction{run.file, run.report.schedule, run.report.world_size, predicted_s, run.report.iteration_s};
}

absl::StatusOr<double> fit_contention_to(const model::Profile& profile, const overlap::Network& network,
                                         std::span<const MeasuredRun> runs) {
  std::vector<std::unique_ptr<overlap::Schedule>> schedules;
  std::vector<overlap::MeasuredIteration> iterations;
  for (const MeasuredRun& run : runs) {
    MAYPOLE_ASSIGN_OR_RETURN(std::unique_ptr<overlap::Schedule> schedule, overlap::make_schedule(run.report.schedule));
    MAYPOLE_ASSIGN_OR_RETURN(std::vector<overlap::GroupLoad> loads, loads_of(profile, run));
    iterations.push_back({schedule.get(), std::move(loads), setting_of(profile, network, run), run.report.iteration_s});
    schedules.push_back(std::move(schedule));
  }
  return overlap::fit_contention(iterations);
}

std::string predictions_text(std::span<const Prediction> predictions) {
  Table table{{"run", "schedule", "workers", "predicted", "measured", "predicted/measured"}, {}};
  for (const Prediction& prediction : predictions) {
    table.rows.push_back({prediction.file, prediction.schedule, fmt::to_string(prediction.workers),
                          base::format_seconds(prediction.predicted_s), base::format_seconds(prediction.measured_s),
                          fmt::format("{:.3f}", prediction.predicted_s / prediction.measured_s)});
  }
  return text_table(table, 2);
}

std::string predictions_json(std::span<const Prediction> predictions) {
  std::string text = "[";
  std::string_view before = "\n";
  for (const Prediction& prediction : predictions) {
    text += fmt::format("{}{{\"file\": {}, \"schedule\": {}, \"workers\": {}, \"predicted_s\": {}, \"measured_s\": {}}}", before,
                        formats::json_string(prediction.file), formats::json_string(prediction.schedule), prediction.workers,
                        formats::format_number(prediction.predicted_s), formats::format_number(prediction.measured_s));
    before = ",\n";
  }
  return text + "]";
}

}  // namespace maypole::cli
