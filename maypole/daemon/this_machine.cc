// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/this_machine.h"

#include "maypole/daemon/core_choice.h"
#include "maypole/formats/cluster_parts.h"
#include "maypole/net/machine.h"

#include <unistd.h>

#include <filesystem>
#include <string>

namespace maypole::daemon {

namespace {

/// Device files nvidia0, nvidia1, ...
int num_gpus() {
  int found = 0;
  std::error_code ignored;
  while (std::filesystem::exists("/dev/nvidia" + std::to_string(found), ignored)) {
    ++found;
  }
  return found;
}

}  // namespace

absl::StatusOr<model::Cluster> this_machine() {
  formats::NamedAmounts capacity = {
      {"cpu", static_cast<double>(usable_cores().size())},
      {"memory", static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE))}};
  if (const int gpus = num_gpus(); gpus > 0) {
    capacity.emplace_back("gpu", gpus);
  }
  formats::ClusterNames names;
  (void)names.add_server(net::host_name(), "", capacity);
  return names.make("this machine");
}

}  // namespace maypole::daemon
