// SPDX-License-Identifier: Apache-2.0
#pragma once

// What stands between a job and a place: found by looking, not by asking the policy.

#include "maypole/sched/ring_placement.h"

#include <optional>
#include <string>
#include <string_view>

namespace maypole::sched {

enum class BlockerKind {
  kNone,       // there is a place
  kAmount,     // all servers together have not enough of `name`
  kShape,      // together they have, but no server (or too few) has enough at once; `where` has most
  kBandwidth,  // servers have room; link `name` is too full for the ring
  kRacks,      // servers and links have room, but not within the racks that the job may span
};
[[nodiscard]] std::string_view name_of(BlockerKind kind);

struct Blocker {
  BlockerKind kind = BlockerKind::kNone;
  std::string name;   // of the resource or link
  std::string where;  // kShape: the server that comes nearest
  double needed = 0;  // kAmount: of all workers asked for; kShape: of one worker; kBandwidth: of the ring on the link; kRacks: at least
  double free = 0;    // kAmount: in all; kShape: on `where`; kBandwidth: on the link; kRacks: allowed
};

/// What keeps a new ring of that many workers out. `placer` (by topology) holds everything else.
[[nodiscard]] Blocker blocker_of_ring(RingPlacer& placer, const ActiveJob& job, int workers);
/// What keeps the job from one more worker on the ring that it has, which must not be taken on `placer`.
[[nodiscard]] Blocker blocker_of_one_more(RingPlacer& placer, const ActiveJob& job, const model::Embedding& ring);

/// Half a sentence: "8 gpu are needed, 5 are free".
[[nodiscard]] std::string text_of(const Blocker& blocker);

}  // namespace maypole::sched
