// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/units.h"
#include "maypole/cli/agent_link.h"
#include "maypole/cli/launch.h"
#include "maypole/cli/run_control.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace maypole::cli {

/// What `maypole run --elastic` asks for beside what every run has.
struct ElasticOptions {
  std::string name;  // for `maypole resize`; "" = the launcher makes one
  int min_workers = 1;
  int max_workers = 1;
  int workers = 1;  // at the start
  int retries = 0;
  bool checkpoints = false;                             // from which newcomers can go on when all workers are lost
  base::Nanoseconds silence = std::chrono::seconds(2);  // after which a worker is lost
  base::Bandwidth bandwidth{};                          // reserved on every edge of the ring
  std::vector<daemon::WorkerPlace> ring = {};           // where each of the first workers is; empty: `hosts` are filled in order
};

/// Runs a job whose workers come and go: each has an agent of its own, started and ended as elastic::Coordinator says. `hosts` are the
/// places, with slots for max_workers in all. Returns the exit code: 0, that of the worker whose failure ended the run, or 1.
[[nodiscard]] int launch_elastic(const RunOptions& options, const ElasticOptions& elastic, std::vector<AgentLink> hosts);

/// The same under another control than that of `maypole resize`. `said`: whether the run says on standard error how it begins and ends.
[[nodiscard]] int launch_elastic(const RunOptions& options, const ElasticOptions& elastic, std::vector<AgentLink> hosts,
                                 std::unique_ptr<RunControl> control, bool said);

}  // namespace maypole::cli
