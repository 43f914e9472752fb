// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

/// What the commands need of a job object of API v1.
struct JobView {
  std::string id;
  std::string name;
  std::string owner;
  std::string state;
  std::string reason;
  int workers = 0;
  int min_workers = 0;
  int max_workers = 0;
  std::vector<std::string> ring;
  double submitted_s = 0;
  std::optional<double> started_s;
  std::optional<double> finished_s;
  std::optional<int> exit_code;
  int retries = 0;

  [[nodiscard]] bool ended() const { return state == "finished" || state == "failed" || state == "cancelled"; }
};

[[nodiscard]] absl::StatusOr<JobView> parse_job(std::string_view json);
/// {"jobs": [...], "left_out": 0}
struct JobList {
  std::vector<JobView> jobs;
  std::int64_t left_out = 0;  // more that there are
};
[[nodiscard]] absl::StatusOr<JobList> parse_jobs(std::string_view json);

/// A line a job, with a line of names before them; ages count from `now_s`.
[[nodiscard]] std::string queue_table(const std::vector<JobView>& jobs, double now_s);
/// One job, a field a line.
[[nodiscard]] std::string job_text(const JobView& job, double now_s);

}  // namespace maypole::cli
