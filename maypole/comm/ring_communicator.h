// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/comm/communicator.h"
#include "maypole/comm/connections.h"
#include "maypole/comm/progress.h"

#include <absl/status/statusor.h>

#include <memory>
#include <vector>

namespace maypole::comm {

/// Meets the peers (connections.h), measures the ring's alpha and beta, and returns this rank's end. Blocks up to the deadline.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Communicator>> create_ring_communicator(const ConnectOptions& connect,
                                                                                     const ProgressOptions& progress = {});

/// The same over links that are connected already.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Communicator>> communicator_over(int rank, Connections connections,
                                                                              const ProgressOptions& progress);

enum class InprocKind { kSharedMemory, kStream, kMixed };

/// A ring of `num_ranks` ends in one process, over socket pairs: what tests, and several rings in one process, use. `kStream` moves
/// bytes as TCP does, `kSharedMemory` as workers of one host do, `kMixed` alternates along the ring.
[[nodiscard]] absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> make_inproc_ring(int num_ranks, InprocKind kind,
                                                                                          const ProgressOptions& progress = {},
                                                                                          base::Bandwidth edge_bandwidth = {});

/// The links of such a ring, for tests that put something between them.
[[nodiscard]] absl::StatusOr<std::vector<Connections>> make_inproc_connections(int num_ranks, InprocKind kind,
                                                                               base::Bandwidth edge_bandwidth);

}  // namespace maypole::comm
