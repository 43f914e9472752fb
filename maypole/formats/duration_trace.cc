// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/number.h"
#include "maypole/formats/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>

namespace maypole::formats {

namespace {

// The columns of a format, and what errors and people call it.
struct Columns {
  std::string_view name;
  std::string_view id;  // empty: rows have no name
  std::string_view time;
  std::string_view duration = "duration";
  std::string_view gpus;
};

Columns columns_of(WorkloadFormat format) {
  switch (format) {
    case WorkloadFormat::kItp:
      return {.name = "Microsoft ITP", .id = "job_id", .time = "submission_time", .gpus = "num_gpu"};
    case WorkloadFormat::kTiresias:
      return {.name = "Tiresias", .id = "job_id", .time = "submit_time", .gpus = "num_gpu"};
    case WorkloadFormat::kPhilly:
    case WorkloadFormat::kOurs:
    case WorkloadFormat::kPollux:
      return {.name = "Philly", .id = "", .time = "timestamp", .gpus = "num_gpus"};
  }
  return {};
}

// Seconds since 1970 of `2017-10-09 07:01:55`, taken as it stands: the trace's local time, whose one change of the clocks is not undone.
double seconds_of_timestamp(const CsvRow& row, std::string_view column) {
  const std::string_view text = row.text(column);
  const bool shaped =
      text.size() == 19 && text[4] == '-' && text[7] == '-' && (text[10] == ' ' || text[10] == 'T') && text[13] == ':' && text[16] == ':';
  const auto part = [&](std::size_t at, std::size_t length) -> int {
    const std::optional<std::int64_t> number = shaped ? parse_integer(text.substr(at, length)) : std::nullopt;
    return number && *number >= 0 ? static_cast<int>(*number) : -1;
  };
  const std::chrono::year_month_day date{std::chrono::year(part(0, 4)), std::chrono::month(static_cast<unsigned>(part(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(part(8, 2)))};
  const int hour = part(11, 2);
  const int minute = part(14, 2);
  const int second = part(17, 2);
  if (!date.ok() || part(0, 4) < 0 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) {
    row.problem(column, "'" + std::string(text) + "' is no time: write it as 2017-10-09 07:01:55");
    return 0;
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second;
}

}  // namespace

Trace read_duration_trace(const CsvTable& table, WorkloadFormat format, const WorkloadOptions& options, const model::Cluster& cluster,
                          Problems& problems) {
  const Columns columns = columns_of(format);
  Trace trace;
  trace.name = columns.name;
  trace.own_deadlines = table.column("deadline").has_value() && options.utility && options.utility->kind == model::UtilityKind::kDeadline;
  trace.jobs.reserve(table.rows.size());
  for (std::size_t i = 0; i < table.rows.size() && problems.ok(); ++i) {
    const CsvRow row(table, i, problems);
    TracedJob& traced = trace.jobs.emplace_back();
    traced.line = row.line();
    model::Job& job = traced.job;
    job.id = columns.id.empty() ? fmt::format("row-{}", i + 1) : row.name(columns.id);
    job.arrival_s = format == WorkloadFormat::kPhilly ? seconds_of_timestamp(row, columns.time) : row.number(columns.time, 0);
    const double duration = row.positive(columns.duration);
    job.workers = row.integer(columns.gpus, 1);
    job.min_workers = job.workers;
    job.max_workers = job.workers;
    job.demand.assign(cluster.num_resources(), 0);
    job.demand[cluster.accelerator()] = 1;
    job.work = duration * job.workers;
    job.progress.zeta = options.slot_s;
    if (options.elastic) {
      job.min_workers = 1;
      job.max_workers = static_cast<int>(std::min<std::int64_t>(std::int64_t{2} * job.workers, std::numeric_limits<int>::max()));
      job.progress.kind = model::ProgressKind::kPower;
      job.progress.reference = job.workers;
      job.progress.exponent = kElasticExponent;
      job.progress.resize_s = kElasticResizeS;
    }
    if (trace.own_deadlines) {
      job.utility.deadline_s = row.positive("deadline");
    }
    set_worth(options, job);
  }
  trace.filling.push_back(options.elastic ? fmt::format("elastic: 1 to 2 x {} workers of one GPU, speed (w / {})^0.8, 30 s a resize",
                                                        columns.gpus, columns.gpus)
                                          : fmt::format("rigid: {} workers of one GPU, or none", columns.gpus));
  trace.filling.emplace_back("work in GPU-seconds");
  trace.filling.emplace_back("no edge bandwidth");
  trace.filling.push_back(worth_filling(options));
  return trace;
}

}  // namespace maypole::formats
