// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/cli/messages.h"

#include <map>
#include <string>
#include <vector>

namespace maypole::cli {

struct WorkerSetting {
  const JobSpec& spec;
  const StartOrder& order;
  int rank;
  int cores;               // of the machine, usable
  std::string folder;      // holds report/ and timeline/
  int rendezvous_fd = -1;  // the listening socket that rank 0 inherits
  int control_fd = -1;     // the control socket that a worker of an elastic run inherits
};

/// The whole environment of a worker: the agent's own, the job's on top, and what says who it is (docs: "Environment of a worker").
/// Variables of a job around this one are dropped; OMP_NUM_THREADS and PYTHONUNBUFFERED are set where the user has not.
[[nodiscard]] std::vector<std::string> worker_environment(const std::vector<std::string>& own, const WorkerSetting& setting);

/// Which of the launcher's variables go to a host that is reached through a launcher template: MAYPOLE_*, those that find programs and
/// libraries, and those that tune the libraries of training.
[[nodiscard]] std::map<std::string, std::string> forwarded_environment(const std::vector<std::string>& own);

}  // namespace maypole::cli
