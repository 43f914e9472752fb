// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/pollux_measurements.h"

#include "maypole/base/status.h"
#include "maypole/formats/csv.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

namespace maypole::formats {

namespace {

using base::error;
using Step = PolluxMeasurements::Step;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
using Steps = std::map<std::pair<int, int>, std::vector<Step>>;

absl::StatusOr<CsvTable> read_table(const std::string& path, std::initializer_list<std::string_view> columns) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  MAYPOLE_ASSIGN_OR_RETURN(CsvTable table, parse_csv(text, file_name(path)));
  for (const std::string_view name : columns) {
    if (!table.column(name)) {
      return error(kInvalid, "{}:1: the column {} is missing", path, name);
    }
  }
  return table;
}

// Adds one measured step, averaged with those of other placements over as many servers and workers.
void add(Steps& steps, std::pair<int, int> shape, const CsvRow& row) {
  const Step measured{row.positive("local_bsz"), row.positive("step_time"), row.number("sync_time", 0)};
  if (measured.sync_s > measured.step_s) {
    row.problem("sync_time", "is longer than the whole step");
  }
  std::vector<Step>& at = steps[shape];
  const auto place = std::ranges::lower_bound(at, measured.local_batch, {}, &Step::local_batch);
  if (place == at.end() || place->local_batch != measured.local_batch) {
    at.insert(place, measured);
    return;
  }
  place->step_s = (place->step_s * place->count + measured.step_s) / (place->count + 1);
  place->sync_s = (place->sync_s * place->count + measured.sync_s) / (place->count + 1);
  ++place->count;
}

// The step at `local` samples a worker, within the measured range or at its nearer end.
Step step_at(const std::vector<Step>& steps, double local) {
  const auto above = std::ranges::lower_bound(steps, local, {}, &Step::local_batch);
  if (above == steps.begin()) {
    return steps.front();
  }
  if (above == steps.end()) {
    return steps.back();
  }
  const Step& below = *(above - 1);
  const double share = (local - below.local_batch) / (above->local_batch - below.local_batch);
  return {local, std::lerp(below.step_s, above->step_s, share), std::lerp(below.sync_s, above->sync_s, share)};
}

double step_seconds(const std::vector<Step>& steps, double local) {
  const double parts = std::max(1.0, std::ceil(local / steps.back().local_batch));
  const Step part = step_at(steps, local / parts);
  return (parts - 1) * (part.step_s - part.sync_s) + part.step_s;
}

absl::Status read_steps(const std::string& folder, Steps& steps) {
  MAYPOLE_ASSIGN_OR_RETURN(const CsvTable placements,
                           read_table(folder + "/placements.csv", {"placement", "local_bsz", "step_time", "sync_time"}));
  Problems problems(placements.file);
  for (std::size_t i = 0; i < placements.rows.size() && problems.ok(); ++i) {
    const CsvRow row(placements, i, problems);
    const std::string digits = row.name("placement");
    int workers = 0;
    for (const char digit : digits) {
      if (digit < '1' || digit > '9') {
        row.problem("placement", fmt::format("'{}': write the GPUs on each server as digits, such as 44", digits));
        break;
      }
      workers += digit - '0';
    }
    add(steps, {static_cast<int>(digits.size()), workers}, row);
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  MAYPOLE_ASSIGN_OR_RETURN(const CsvTable beyond,
                           read_table(folder + "/scalability.csv", {"num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"}));
  Problems more(beyond.file);
  for (std::size_t i = 0; i < beyond.rows.size() && more.ok(); ++i) {
    const CsvRow row(beyond, i, more);
    add(steps, {row.integer("num_nodes", 1), row.integer("num_replicas", 1)}, row);
  }
  MAYPOLE_RETURN_IF_ERROR(more.status());
  return steps.empty() ? error(kInvalid, "{}/placements.csv: has no row", folder) : absl::OkStatus();
}

absl::StatusOr<double> last_iteration(const std::string& path) {
  MAYPOLE_ASSIGN_OR_RETURN(const CsvTable table, read_table(path, {"iteration"}));
  if (table.rows.empty()) {
    return error(kInvalid, "{}: has no row", path);
  }
  Problems problems(table.file);
  const double iterations = CsvRow(table, table.rows.size() - 1, problems).positive("iteration");
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return iterations;
}

absl::Status read_samples(const std::string& folder, std::map<double, double>& samples) {
  constexpr std::string_view kBefore = "validation-";
  constexpr std::string_view kAfter = ".csv";
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) {
      continue;
    }
    const std::string_view middle = std::string_view(name).substr(kBefore.size(), name.size() - kBefore.size() - kAfter.size());
    const std::optional<double> batch = parse_number(middle);
    if (!batch || *batch <= 0) {
      return error(kInvalid, "{}/{}: its name holds no batch size", folder, name);
    }
    MAYPOLE_ASSIGN_OR_RETURN(const double iterations, last_iteration(entry->path().string()));
    samples[*batch] = iterations * *batch;
  }
  if (failure) {
    return error(kInvalid, "{}: {}", folder, failure.message());
  }
  return samples.empty() ? error(kInvalid, "{}: holds no validation-BATCH.csv", folder) : absl::OkStatus();
}

}  // namespace

double PolluxMeasurements::samples(double batch) const {
  const auto above = samples_.lower_bound(batch);
  if (above == samples_.begin()) {
    return above->second;
  }
  const auto below = std::prev(above);
  if (above == samples_.end()) {
    return below->second;
  }
  const double share = std::log(batch / below->first) / std::log(above->first / below->first);
  return std::lerp(below->second, above->second, share);
}

std::vector<model::RatePoint> PolluxMeasurements::rates(double batch) const {
  std::vector<model::RatePoint> points;
  for (const auto& [shape, steps] : steps_) {
    const auto [servers, workers] = shape;
    if (workers <= batch) {
      points.push_back({workers, servers, batch / step_seconds(steps, batch / workers)});
    }
  }
  return points;
}

int PolluxMeasurements::most_workers(double batch) const {
  int most = 1;
  for (const auto& [shape, steps] : steps_) {
    if (batch / shape.second >= steps.front().local_batch) {
      most = std::max(most, shape.second);
    }
  }
  return most;
}

absl::StatusOr<PolluxMeasurements> read_pollux_measurements(const std::string& folder) {
  PolluxMeasurements measured;
  MAYPOLE_RETURN_IF_ERROR(read_steps(folder, measured.steps_));
  MAYPOLE_RETURN_IF_ERROR(read_samples(folder, measured.samples_));
  return measured;
}

}  // namespace maypole::formats
