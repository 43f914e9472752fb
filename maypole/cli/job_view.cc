// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_view.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

namespace maypole::cli {

namespace {

constexpr int kMost = std::numeric_limits<int>::max();
constexpr std::string_view kAnswer = "the daemon's answer";

JobView read_job(const formats::Value& value) {
  formats::Map map(value);
  JobView job;
  job.id = map["id"].text();
  job.name = map["name"].text();
  job.owner = map["owner"].text();
  job.state = map["state"].text();
  job.reason = map["reason"].text();
  job.workers = static_cast<int>(map["workers"].integer(0, kMost));
  job.min_workers = static_cast<int>(map["min_workers"].integer(0, kMost));
  job.max_workers = static_cast<int>(map["max_workers"].integer(0, kMost));
  for (const formats::Value& server : map["ring"].list()) {
    job.ring.push_back(server.text());
  }
  job.submitted_s = map["submitted_s"].number();
  job.started_s = map["started_s"].optional_number();
  job.finished_s = map["finished_s"].optional_number();
  if (const formats::Value code = map["exit_code"]; code.present()) {
    job.exit_code = static_cast<int>(code.integer(0, kMost));
  }
  job.retries = static_cast<int>(map["retries"].integer(0, kMost));
  return job;  // a later daemon may send more fields
}

std::string span_of(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds));
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  if (whole < kMinute) {
    return fmt::format("{}s", whole);
  }
  return whole < kHour ? fmt::format("{}:{:02}", whole / kMinute, whole % kMinute)
                       : fmt::format("{}:{:02}:{:02}", whole / kHour, whole / kMinute % kMinute, whole % kMinute);
}

std::string range_of(const JobView& job) {
  return job.min_workers == job.max_workers ? std::to_string(job.min_workers) : fmt::format("{}:{}", job.min_workers, job.max_workers);
}

}  // namespace

absl::StatusOr<JobView> parse_job(std::string_view json) {
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(json, kAnswer));
  formats::Problems problems{std::string(kAnswer)};
  JobView job = read_job(formats::Value(&node, 1, "", &problems));
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return job;
}

absl::StatusOr<std::vector<JobView>> parse_jobs(std::string_view json) {
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Node node, formats::parse_json(json, kAnswer));
  formats::Problems problems{std::string(kAnswer)};
  formats::Map map(formats::Value(&node, 1, "", &problems));
  std::vector<JobView> jobs;
  for (const formats::Value& item : map["jobs"].list()) {
    jobs.push_back(read_job(item));
  }
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return jobs;
}

std::string queue_table(const std::vector<JobView>& jobs, double now_s) {
  using Row = std::array<std::string, 7>;
  std::vector<Row> rows = {{"id", "name", "owner", "state", "workers", "time", "reason"}};
  for (const JobView& job : jobs) {
    const double since = job.started_s.value_or(job.submitted_s);
    const std::string workers = job.workers > 0 ? fmt::format("{} of {}", job.workers, range_of(job)) : range_of(job);
    rows.push_back({job.id, job.name, job.owner, job.state, workers, span_of(job.finished_s.value_or(now_s) - since), job.reason});
  }
  std::array<std::size_t, 7> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string job_text(const JobView& job, double now_s) {
  std::string text = fmt::format("job {}{}\n", job.id, job.name.empty() ? "" : " (" + job.name + ")");
  const auto add = [&](std::string_view name, const std::string& value) { text += fmt::format("  {:<10} {}\n", name, value); };
  add("state", job.reason.empty() ? job.state : fmt::format("{}: {}", job.state, job.reason));
  add("owner", job.owner);
  add("workers", job.workers > 0 ? fmt::format("{} of {}", job.workers, range_of(job)) : fmt::format("none of {}", range_of(job)));
  if (!job.ring.empty()) {
    add("ring", fmt::format("{}", fmt::join(job.ring, " -> ")));
  }
  add("submitted", span_of(now_s - job.submitted_s) + " ago");
  if (job.started_s) {
    add("started", fmt::format("{} after it was submitted", span_of(*job.started_s - job.submitted_s)));
  }
  if (job.finished_s) {
    add("ended", fmt::format("{} after it was submitted", span_of(*job.finished_s - job.submitted_s)));
  }
  if (job.exit_code) {
    add("exit code", std::to_string(*job.exit_code));
  }
  if (job.retries > 0) {
    add("retries", std::to_string(job.retries));
  }
  return text;
}

}  // namespace maypole::cli
