// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which accelerators of this machine a worker gets. Servers of a cluster file share the machine's devices in the file's order: the first
// server with four GPUs has 0 to 3, the next one begins at 4.

#include "maypole/model/cluster.h"
#include "maypole/model/job.h"

#include <absl/status/statusor.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::daemon {

/// [rank]: device numbers.
using Devices = std::vector<std::vector<int>>;

/// The lowest free ones on each server; as many as the job's demand for `gpu` says. `used`: by others.
[[nodiscard]] Devices choose_devices(const model::Cluster& cluster, const model::Job& job, const std::vector<model::ServerId>& ring,
                                     std::set<int> used);

/// "0,1;2,3"; empty where no rank has any.
[[nodiscard]] std::string devices_text(const Devices& devices);
[[nodiscard]] Devices parse_devices(std::string_view text, std::size_t num_workers);

}  // namespace maypole::daemon
