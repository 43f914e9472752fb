// SPDX-License-Identifier: Apache-2.0
#pragma once

// Any workload as our CSV (`maypole convert`). The columns hold less than a Job does: what they lose is listed for people, never dropped
// in silence.

#include "maypole/model/job.h"

#include <absl/status/statusor.h>

#include <span>
#include <string>
#include <vector>

namespace maypole::formats {

struct WorkloadCsv {
  std::string text;
  std::vector<std::string> lost;  // a sentence each: `the resize cost of 12 jobs`
};

/// `slot_s` is that of the progress models. Work becomes worker-seconds at `workers` workers; where speed depends on placement, on as few
/// servers as they need; weights change with its unit, so that a finished job is worth what it was. Errors: jobs that need none of the
/// cluster's accelerator.
[[nodiscard]] absl::StatusOr<WorkloadCsv> workload_csv(std::span<const model::Job> jobs, const model::Cluster& cluster, double slot_s);

}  // namespace maypole::formats
