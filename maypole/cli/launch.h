// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/cli/agent_link.h"

#include <map>
#include <string>
#include <vector>

namespace maypole::cli {

/// A job as `maypole run` was asked for it; checked already.
struct RunOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> settings;  // MAYPOLE_SCHEDULE and the like, and --env: in every worker's environment
  std::string report;                           // file names; "" = not asked for
  std::string timeline;
  std::string profile;
  bool json = false;
};

/// What the agent is told first; which ranks it starts is the caller's to fill in.
[[nodiscard]] JobSpec spec_of(const RunOptions& options, const AgentLink& agent, const std::string& job_id, const std::string& secret);

/// Runs the job on the hosts of `agents` (one or more, in rank order) to its end and returns the exit code: the job's own, 128 + signal,
/// 130 when cancelled, 1 when a host was lost.
[[nodiscard]] int launch(const RunOptions& options, std::vector<AgentLink> agents);

}  // namespace maypole::cli
