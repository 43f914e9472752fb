// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/membership.h"

#include <algorithm>

namespace maypole::elastic {

std::optional<int> Membership::rank_of(WorkerId worker) const {
  const auto found = std::ranges::find(members, worker, &Member::worker);
  return found == members.end() ? std::nullopt : std::optional<int>(static_cast<int>(found - members.begin()));
}

int Membership::local_rank(int rank) const {
  const auto end = members.begin() + rank;
  return static_cast<int>(std::count_if(members.begin(), end, [&](const Member& other) { return other.host == end->host; }));
}

Change change_to(const std::vector<WorkerId>& survivors, const std::vector<WorkerId>& newcomers, std::size_t target) {
  Change change;
  for (const WorkerId worker : survivors) {
    (change.members.size() < target ? change.members : change.leavers).push_back(worker);
  }
  for (const WorkerId worker : newcomers) {
    if (change.members.size() < target) {
      change.members.push_back(worker);
    }
  }
  return change;
}

}  // namespace maypole::elastic
