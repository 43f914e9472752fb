// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: communicators of P ranks in one process. One thread carries out the pieces of all operations in random order (seeded), as
// far as causality and the lanes allow: reduce-scatters in order, all-gather pieces of one sender in the order in which it supplied
// them (standing still while the receiver has not opened the tag), user operations in order.

#include "maypole/comm/communicator.h"

#include <functional>
#include <memory>
#include <vector>

namespace maypole::pipeline {

/// Is told of each all-gather as a rank opens it, on the thread that does; may block it.
using GatherWatch = std::function<void(int rank, const comm::AllGatherOp& op)>;
/// Whether a rank's part of an all-gather may travel; else the all-gather never ends.
using SupplyGate = std::function<bool(int rank, std::uint64_t tag)>;
[[nodiscard]] std::vector<std::unique_ptr<comm::Communicator>> make_fake_ring(int num_ranks, unsigned seed, const GatherWatch& watch = {},
                                                                              const SupplyGate& gate = {});

}  // namespace maypole::pipeline
