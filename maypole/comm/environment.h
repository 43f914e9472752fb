// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a worker's environment says about its ring. Three launchers are understood, and MAYPOLE_* variables overrule them:
//
//   `maypole run`   sets RANK, WORLD_SIZE, ... and everything under MAYPOLE_*.
//   `torchrun`      RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT. Rank 0 listens at MASTER_PORT + 1, because the port itself
//                   belongs to torch. Job and secret come from TORCHELASTIC_RUN_ID, the epoch from TORCHELASTIC_RESTART_COUNT.
//   `srun`          SLURM_PROCID, SLURM_NTASKS, ... Rank 0 is on the first host of the node list, at a port made from job and step.
//
// Without MAYPOLE_SECRET the last two have a secret that anyone can guess who knows the job: it keeps jobs apart, not strangers out.
// On a network that others use, set MAYPOLE_SECRET to the same random text for all workers. With none of the three the world is one worker.

#include "maypole/base/units.h"
#include "maypole/comm/connections.h"

#include <absl/status/statusor.h>

#include <functional>
#include <optional>
#include <string>

namespace maypole::comm {

struct Environment {
  ConnectOptions connect;
  int local_rank = 0;                                     // among the workers of this host
  int local_size = 1;                                     // at least local_rank + 1, where the launcher does not say
  std::optional<std::string> schedule;                    // MAYPOLE_SCHEDULE: sync, wfbp, dear or weave; overrides what the script says
  std::optional<std::string> backend;                     // MAYPOLE_BACKEND: native or c10d; overrides what the script says
  base::Nanoseconds timeout = std::chrono::minutes(30);   // MAYPOLE_TIMEOUT: how late a live peer may be
  base::Nanoseconds heartbeat = std::chrono::seconds(2);  // MAYPOLE_HEARTBEAT: silence after which a peer is lost
  std::string report_directory;                           // MAYPOLE_REPORT_DIR: where to leave rank-R.json; "": nowhere
  std::string timeline_directory;                         // MAYPOLE_TIMELINE_DIR: likewise
};

/// Looks up one variable; nothing when it is not set.
using EnvironmentLookUp = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads and checks all variables; an empty value counts as not set. An error names variable, value and remedy in one line.
[[nodiscard]] absl::StatusOr<Environment> read_environment(const EnvironmentLookUp& look_up);
/// Reads this process's environment.
[[nodiscard]] absl::StatusOr<Environment> read_environment();

}  // namespace maypole::comm
