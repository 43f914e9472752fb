// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/workload.h"

#include "maypole/base/status.h"
#include "maypole/formats/cluster_parts.h"
#include "maypole/formats/text_file.h"
#include "maypole/formats/trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr double kDayS = 86400;
// Half of the jobs of a real trace end within hours, and none collects for ten years: longer ones are milliseconds.
constexpr double kLongestMedianS = 30 * kDayS;
constexpr double kLongestS = 3653 * kDayS;

absl::Status check_names(const std::vector<TracedJob>& jobs, std::string_view file) {
  std::unordered_map<std::string_view, int> lines;
  for (const TracedJob& traced : jobs) {
    if (const auto [found, is_new] = lines.try_emplace(traced.job.id, traced.line); !is_new) {
      return error(kInvalid, "{}:{}: the job '{}' is there twice (first in line {}): give each its own name", file, traced.line,
                   traced.job.id, found->second);
    }
  }
  return absl::OkStatus();
}

// Of a trace of durations: work = duration x workers.
absl::Status check_plausible(const std::vector<TracedJob>& jobs, std::string_view file) {
  std::vector<std::pair<double, int>> durations;  // with the row's line
  for (const TracedJob& traced : jobs) {
    durations.emplace_back(traced.job.work.value_or(0) / traced.job.workers, traced.line);
  }
  const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
  std::ranges::nth_element(durations, middle);
  const auto longest = std::ranges::max_element(durations);
  if (middle->first > kLongestMedianS || longest->first > kLongestS) {
    const auto [seconds, line] = middle->first > kLongestMedianS ? *middle : *longest;
    return error(kInvalid, "{}:{}: duration: {:.6g} s is {:.0f} days{}: are these milliseconds? Give seconds", file, line, seconds,
                 seconds / kDayS, middle->first > kLongestMedianS ? ", and half of the jobs last longer" : "");
  }
  return absl::OkStatus();
}

absl::Status check_span(const std::vector<TracedJob>& jobs, std::string_view file) {
  const auto [first, last] = std::ranges::minmax_element(jobs, {}, [](const TracedJob& traced) { return traced.job.arrival_s; });
  if (last->job.arrival_s - first->job.arrival_s > kLongestS) {
    return error(kInvalid, "{}:{}: arrives {:.0f} days after the first job: are these milliseconds? Give seconds", file, last->line,
                 (last->job.arrival_s - first->job.arrival_s) / kDayS);
  }
  return absl::OkStatus();
}

absl::StatusOr<Trace> read_trace(std::string_view text, std::string_view file, const WorkloadOptions& options,
                                 const model::Cluster& cluster) {
  if (const std::size_t first = text.find_first_not_of(" \t\r\n"); first != std::string_view::npos && text[first] == '{') {
    return error(kInvalid, "{}: is JSON: a workload is CSV; an instance is read where its name ends in .json", file);
  }
  MAYPOLE_ASSIGN_OR_RETURN(const CsvTable table, parse_csv(text, file));
  MAYPOLE_ASSIGN_OR_RETURN(const WorkloadFormat format, recognise(table));
  if (table.rows.empty()) {
    return error(kInvalid, "{}: has no job below its header: give at least one row", file);
  }
  Problems problems{std::string(file)};
  Trace trace;
  bool durations = false;
  switch (format) {
    case WorkloadFormat::kOurs:
      trace = read_our_csv(table, options, cluster, problems);
      break;
    case WorkloadFormat::kPollux:
      trace = read_pollux_trace(table, options, cluster, problems);
      break;
    case WorkloadFormat::kItp:
    case WorkloadFormat::kPhilly:
    case WorkloadFormat::kTiresias:
      trace = read_duration_trace(table, format, options, cluster, problems);
      durations = true;
      break;
  }
  trace.format = format;
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  MAYPOLE_RETURN_IF_ERROR(check_names(trace.jobs, file));
  MAYPOLE_RETURN_IF_ERROR(check_span(trace.jobs, file));
  if (durations) {
    MAYPOLE_RETURN_IF_ERROR(check_plausible(trace.jobs, file));
  }
  return trace;
}

// Puts the jobs in order of arrival; counts time from the first where that is the trace's way.
void order(Trace& trace) {
  const auto place = [](const TracedJob& traced) { return std::pair(traced.job.arrival_s, traced.line); };
  if (!std::ranges::is_sorted(trace.jobs, {}, place)) {
    std::ranges::sort(trace.jobs, {}, place);
    trace.filling.emplace_back("the file is not in order of arrival: sorted");
  }
  const double first = trace.jobs.front().job.arrival_s;
  if (trace.from_first_arrival && first != 0) {
    for (TracedJob& traced : trace.jobs) {
      traced.job.arrival_s -= first;
      if (trace.own_deadlines) {
        traced.job.utility.deadline_s = std::max(0.0, traced.job.utility.deadline_s - first);
      }
    }
    trace.filling.push_back(fmt::format("times count from the first arrival ({} in the file)", first));
  }
}

}  // namespace

absl::StatusOr<Workload> parse_workload(std::string_view text, std::string_view file, const WorkloadOptions& options,
                                        const model::Cluster& cluster) {
  MAYPOLE_ASSIGN_OR_RETURN(Trace trace, read_trace(text, file, options, cluster));
  order(trace);
  if (options.most_jobs > 0 && options.most_jobs < trace.jobs.size()) {
    trace.filling.push_back(fmt::format("the first {} of {} jobs", options.most_jobs, trace.jobs.size()));
    trace.jobs.resize(options.most_jobs);
  }
  if (!cluster.find_resource("gpu")) {
    if (cluster.num_resources() > 1) {
      return error(kInvalid, "{}: its jobs count GPUs, and no server of the cluster has any 'gpu': name that resource of the cluster so",
                   file);
    }
    trace.filling.push_back(fmt::format("a GPU of a job is one {} of the cluster", cluster.resource(cluster.accelerator())));
  }
  Workload workload;
  workload.format = trace.format;
  workload.jobs.reserve(trace.jobs.size());
  for (TracedJob& traced : trace.jobs) {
    if (const absl::Status checked = check_job(traced.job, cluster); !checked.ok()) {
      return error(checked.code(), "{}:{}: {}", file, traced.line, base::message(checked));
    }
    workload.jobs.push_back(std::move(traced.job));
  }
  workload.filling = fmt::format("{}: {} jobs ({}); {}", file, workload.jobs.size(), trace.name, fmt::join(trace.filling, "; "));
  return workload;
}

absl::StatusOr<Workload> read_workload(const std::string& path, const WorkloadOptions& options, const model::Cluster& cluster) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  WorkloadOptions with_folder = options;
  if (with_folder.measured.empty()) {
    // .../workloads/workload-1.csv and .../measured/
    with_folder.measured = folder_of(path) + "/../measured";
  }
  if (with_folder.folder.empty()) {
    with_folder.folder = folder_of(path);
  }
  return parse_workload(text, file_name(path), with_folder, cluster);
}

}  // namespace maypole::formats
