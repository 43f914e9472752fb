// SPDX-License-Identifier: Apache-2.0
#pragma once

// A job as people describe it: job.yaml, or the same as options of `submit`. See docs/formats.md.

#include "maypole/formats/job_fields.h"
#include "maypole/model/job.h"

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maypole::formats {

struct JobFile {
  std::string name;  // may be empty
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> env;  // in the order written
  std::string chdir = ".";
  std::optional<double> time_limit_s;
  int retries = 0;
  bool allow_wait = false;  // one that can never fit waits for a larger cluster
  NamedAmounts per_worker;  // may be empty; becomes job.demand by demand_on()
  /// Workers, edge bandwidth, utility, weight, progress and racks. Without an id, arrival and demand, which need a daemon and a cluster. A
  /// deadline counts from the job's submission.
  model::Job job;
};

/// Errors: `job.yaml:7: min_workers: ...`. `workers` is 1 where absent; min_workers and max_workers are `workers` where absent.
/// `folder`: where the file of a progress model lies that the job names; without it the job may name none.
[[nodiscard]] absl::StatusOr<JobFile> parse_job_file(std::string_view text, std::string_view file, const std::string& folder = "");
[[nodiscard]] absl::StatusOr<JobFile> read_job_file(const std::string& path);

/// The amounts by the cluster's resources; an error names the one that no server has.
[[nodiscard]] absl::StatusOr<model::Amounts> demand_on(const model::Cluster& cluster, const NamedAmounts& per_worker);

/// `1`, or `1@10min`: at most one rack, for as long as the job has waited less than ten minutes.
struct RackLimit {
  int racks = 0;
  double for_s = 0;  // 0: always
};
[[nodiscard]] absl::StatusOr<RackLimit> parse_rack_limit(std::string_view text);

/// What an option `--utility` holds: `sqrt`, or with parameters `{kind: sigmoid, sensitivity: 0.5, expected: 300}`; `weight` as in
/// job.yaml. The `work` of a deadline may be left out; it is 1 then.
struct WeightedUtility {
  model::Utility utility;
  double weight = 1;
};
[[nodiscard]] absl::StatusOr<WeightedUtility> parse_utility(std::string_view text);

}  // namespace maypole::formats
