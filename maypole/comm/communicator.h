// SPDX-License-Identifier: Apache-2.0
#pragma once

// One rank's end of a ring: asynchronous collectives over its neighbours.
//
// Three lanes carry data independently of each other, so that none blocks another:
//   reduce-scatter lane  operations are known by their tag; each rank sends them in the order in which it started them, so all ranks
//                        should start them in the same order (plan order); a frame that comes early is set aside;
//   all-gather lane      operations are known by their tag and may be started in any order; pieces land in their final place;
//   user lane            all_reduce, reduce_scatter, all_gather, broadcast, barrier in call order, which must agree across ranks.
// At every segment a sender serves the user lane first (somebody waits for it), then reduce-scatter, then all-gather by priority.
//
// Errors (through Work): kUnavailable names the lost rank, kDeadlineExceeded the late one, kFailedPrecondition the rank whose sizes
// or order differ. After an error the communicator is closed: every pending and later operation ends with the first error.

#include "maypole/base/dtype.h"
#include "maypole/base/units.h"
#include "maypole/comm/work.h"
#include "maypole/model/block_layout.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace maypole::comm {

enum class ReduceOp : std::uint8_t { kSum, kAverage };

/// Memory that peers on the same host can read in place; unmapped with the last handle (which the communicator need not outlive).
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() const = 0;
};

/// The reduce-scatter of one group: afterwards rank r holds the reduced chunk r of every block, the rest of `data` is as before.
struct ReduceScatterOp {
  std::uint64_t tag = 0;      // names the operation on every rank; unique among operations not yet done on any rank
  std::byte* data = nullptr;  // arena base (element 0 of the arena); the range is read, own chunks are written at the end
  model::BlockRange range;    // elements
  base::DType dtype = base::DType::kFloat32;
  base::DType wire = base::DType::kFloat32;  // kBFloat16 halves the bytes of float32 data; sums accumulate in float32
  ReduceOp op = ReduceOp::kAverage;
};

/// The all-gather of one group: rank r's chunk of every block goes to all; other chunks of `data` are overwritten as they arrive.
struct AllGatherOp {
  std::uint64_t tag = 0;      // names the operation on every rank; unique among operations not yet done on any rank
  std::int64_t priority = 0;  // lower is sent first
  std::byte* data = nullptr;  // arena base; chunks land in place
  model::BlockRange range;
  base::DType dtype = base::DType::kFloat32;
  base::DType wire = base::DType::kFloat32;  // kBFloat16: the owner rounds its own chunk too, so all ranks hold equal bits
};

/// What was measured of one edge when the ring formed.
struct EdgeCost {
  double alpha_s = 0;          // one-way start-up time
  double beta_s_per_byte = 0;  // inverse payload bandwidth
};

/// What a caller waits for without a limit of its own.
struct Wait {
  base::TimePoint since;
  std::string what;
};

/// What the layer above knows of its own threads.
struct CallerState {
  bool working = false;      // something runs that will go on by itself
  std::optional<Wait> wait;  // in the layer above, not in a Work
};

struct TrafficCounters {
  std::uint64_t payload_bytes_sent = 0;
  std::uint64_t payload_bytes_received = 0;
  double link_s_per_byte = 0;  // of the socket to the next rank while more waited than it carried; 0 before enough was seen
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int num_ranks() const = 0;

  /// Zeroed, page-aligned memory that peers on this host read in place. Collectives accept any memory; on this memory they copy nothing.
  /// Thread: any. Blocks until peers on this host can read it.
  [[nodiscard]] virtual absl::StatusOr<std::shared_ptr<SharedMemory>> allocate(std::size_t bytes) = 0;

  // --- group collectives (pipeline) ---

  /// Starts the next reduce-scatter. Cost: (P-1)/P of the range is sent and received. Done: own chunks hold the result and no peer
  /// needs this rank's data any more.
  [[nodiscard]] virtual Work reduce_scatter_group(const ReduceScatterOp& op) = 0;

  /// Opens an all-gather: peers' chunks may land from now on, and are passed on. Chunks that arrive for a tag that is not open wait
  /// (the lane stands still), so open a tag before any peer can finish the data it gathers, or accept the wait.
  /// Done: all chunks are here, and no peer needs this rank's data any more. `supply` must be called for it to end.
  [[nodiscard]] virtual Work open_all_gather(const AllGatherOp& op) = 0;

  /// Declares that own chunks of an open all-gather are final: they may be sent from now on.
  virtual void supply_all_gather(std::uint64_t tag) = 0;

  // --- user collectives: plain buffers; `data` must stay valid and untouched until done ---

  /// In place; logarithmic for small buffers, ring for large ones, chosen from the measured alpha and beta. All ranks get equal bits.
  [[nodiscard]] virtual Work all_reduce(std::byte* data, std::size_t count, base::DType dtype, ReduceOp op) = 0;
  /// Reads `input` (count elements), writes chunk r = chunk_of(count, rank, P) to `output`; `output` may be the own chunk
  /// of `input`; otherwise the two must not overlap. Reduces: not kByte.
  [[nodiscard]] virtual Work reduce_scatter(const std::byte* input, std::size_t count, std::byte* output, base::DType dtype,
                                            ReduceOp op) = 0;
  /// Chunk r = chunk_of(count, rank, P) of `data` goes to every rank; in place.
  [[nodiscard]] virtual Work all_gather(std::byte* data, std::size_t count, base::DType dtype) = 0;
  [[nodiscard]] virtual Work broadcast(std::byte* data, std::size_t bytes, int root) = 0;
  [[nodiscard]] virtual Work barrier() = 0;

  // --- service to peers ---

  /// Answers `read_peer` of other ranks, on the progress thread, without this rank's caller: returns the bytes asked for, or an error.
  /// `key` names what is wanted; the provider must be quick or copy. Replaces an earlier provider.
  virtual void serve(std::function<absl::StatusOr<std::vector<std::byte>>(std::uint64_t key)> provider) = 0;
  /// Asks rank `peer` for `key`; blocks until the answer or the deadline. A provider's kUnavailable means "not yet": it is asked again.
  [[nodiscard]] virtual absl::StatusOr<std::vector<std::byte>> read_peer(int peer, std::uint64_t key, base::Nanoseconds deadline) = 0;

  /// Where the layer above waits is asked, on the progress thread, when nothing has moved for long: when every rank waits and nothing
  /// moves on any, the communicator ends with an error that says what each waits for. Replaces what was given earlier.
  virtual void watch_caller(std::function<CallerState()> state) = 0;

  // --- life ---

  /// Ends every operation on every rank with `reason`; thread-safe, does not block, the first reason wins.
  virtual void abort(absl::Status reason) = 0;
  /// Says goodbye and serves peers until all have said it or are lost, at most `limit`; then closes. Call once, at the end.
  virtual absl::Status finalize(base::Nanoseconds limit) = 0;
  /// OK while open; else the first error.
  [[nodiscard]] virtual absl::Status status() const = 0;
  /// Closes all descriptors without a word to the peers: for a forked child, which must not keep sockets open.
  virtual void close_after_fork() = 0;

  [[nodiscard]] virtual EdgeCost edge_cost() const = 0;
  [[nodiscard]] virtual TrafficCounters traffic() const = 0;
  /// One line for people: ring order, transport and address of each edge, pacing.
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace maypole::comm
