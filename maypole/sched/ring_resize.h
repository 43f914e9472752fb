// SPDX-License-Identifier: Apache-2.0
#pragma once

// A ring that grows or shrinks by a few workers and otherwise stays where it is. Both functions only propose: the ring that they start from
// must not be taken on the placer (what it holds counts as free), and what they return is not taken either.

#include "maypole/sched/ring_placement.h"

#include <optional>

namespace maypole::sched {

/// One worker more: on a server of the ring that has room, else on another one, by topology of the same rack if it can be. None where
/// nothing fits; with reservations only a few servers are tried.
[[nodiscard]] std::optional<model::Embedding> one_more(RingPlacer& placer, const ActiveJob& job, const model::Embedding& ring);

/// The ring with `workers` left, fewer than it has: servers with the fewest workers are emptied first. It need not fit where the cluster
/// is no tree: the path past a server that left may use other links.
[[nodiscard]] model::Embedding fewer(RingPlacer& placer, const ActiveJob& job, const model::Embedding& ring, int workers);

}  // namespace maypole::sched
