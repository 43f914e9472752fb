// SPDX-License-Identifier: Apache-2.0
#pragma once

// One policy through one scenario, and its figures as people and as programs read them.

#include "maypole/cli/policy_spec.h"
#include "maypole/cli/scenario.h"
#include "maypole/sim/metrics.h"
#include "maypole/sim/simulator.h"

#include <absl/status/statusor.h>

#include <functional>
#include <optional>
#include <string>

namespace maypole::cli {

struct SimulationRun {
  PolicySpec policy;
  sim::Simulation simulation;
  sim::Metrics metrics;
};

/// Runs with a progress bar. `options` may hold callbacks; on_progress is taken over.
[[nodiscard]] absl::StatusOr<SimulationRun> run_policy(const model::Instance& instance, const PolicySpec& policy,
                                                       sim::SimulationOptions options);

/// What no policy can exceed.
struct UtilityBound {
  double value = 0;
  std::string kind;  // how it was found
};
[[nodiscard]] UtilityBound utility_bound(const model::Instance& instance);

/// The object of `--json` (docs/scheduler.md names its fields).
[[nodiscard]] std::string simulation_json(const SimulationRun& run, const Scenario& scenario, const UtilityBound& bound);
/// The same for people, a line a figure.
[[nodiscard]] std::string simulation_text(const SimulationRun& run, const UtilityBound& bound);
/// A sentence where the workload asks for more than the cluster has; empty otherwise.
[[nodiscard]] std::string overload_text(const model::Instance& instance);

}  // namespace maypole::cli
