// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who trains together. A membership is a value: one epoch, its members in the order of the ring. It never changes; another set of
// members, or the same set after a failure, is another epoch with a larger number.

#include "maypole/base/strong_id.h"
#include "maypole/base/units.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace maypole::elastic {

/// One worker process of a run. Numbers count up and are never given twice: a replacement is another worker.
using WorkerId = base::StrongId<struct WorkerTag>;

struct Member {
  WorkerId worker;
  std::string host;        // host entry of the launcher: equal means the same host
  std::string rendezvous;  // "address:port" where this worker meets the others when it is rank 0
  base::Bandwidth edge{};  // reserved on the way to the next member; none: as fast as it goes
  bool operator==(const Member&) const = default;
};

struct Membership {
  std::uint32_t epoch = 0;      // 0: nobody has met yet
  std::vector<Member> members;  // [rank]: the order on the wire
  bool operator==(const Membership&) const = default;

  [[nodiscard]] std::optional<int> rank_of(WorkerId worker) const;
  /// Position of `rank` among the members of its host.
  [[nodiscard]] int local_rank(int rank) const;
};

/// What becomes of `now` with `target` members: survivors keep their order, the last ones leave first, newcomers follow at the end.
struct Change {
  std::vector<WorkerId> members;  // in ring order
  std::vector<WorkerId> leavers;
};
[[nodiscard]] Change change_to(const std::vector<WorkerId>& survivors, const std::vector<WorkerId>& newcomers, std::size_t target);

}  // namespace maypole::elastic
