// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policy.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/sched/policies/drf.h"
#include "maypole/sched/policies/exact.h"
#include "maypole/sched/policies/fifo.h"
#include "maypole/sched/policies/gadget.h"
#include "maypole/sched/policies/gadget_paper.h"
#include "maypole/sched/policies/las.h"
#include "maypole/sched/policies/optimus.h"
#include "maypole/sched/policies/srtf.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace maypole::sched {

namespace {

struct Entry {
  std::string name;
  PolicyFactory make;
};

// One line a policy; in the order in which people should see them.
std::vector<Entry>& entries() {
  static std::vector<Entry> all = {
      {"gadget", make_gadget},              //
      {"gadget-blind", make_gadget_blind},  //
      {"gadget-paper", make_gadget_paper},  //
      {"exact", make_exact},                //
      {"fifo", make_fifo},                  //
      {"srtf", make_srtf},                  //
      {"drf", make_drf},                    //
      {"las", make_las},                    //
      {"optimus", make_optimus},            //
  };
  return all;
}

}  // namespace

void add_policy(std::string name, PolicyFactory make) {
  MAYPOLE_CHECK(std::ranges::find(entries(), name, &Entry::name) == entries().end());
  entries().push_back({std::move(name), std::move(make)});
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) {
    names.push_back(entry.name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Policy>> make_policy(const std::string& name, const PolicyOptions& options) {
  for (const Entry& entry : entries()) {
    if (entry.name == name) {
      return entry.make(options);
    }
  }
  return base::error(absl::StatusCode::kInvalidArgument, "'{}' is not a policy: choose one of {}", name, fmt::join(policy_names(), ", "));
}

}  // namespace maypole::sched
