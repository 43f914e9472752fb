// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace maypole::comm {

/// What a frame means; data frames are the pieces of collectives, the rest travels on the control lane.
enum class FrameKind : std::uint32_t {
  kReduceScatter = 1,  // a partial sum of one segment of a chunk
  kAllGather = 2,      // a final segment of a chunk
  kExchange = 3,       // a whole vector of the logarithmic all-reduce; `chunk` is the step
  kHeartbeat = 16,
  kAbort = 17,    // payload: status code and text; passed on once
  kGoodbye = 18,  // `chunk`: the rank that ended normally; payload: how many operations of each lane it had started
  kRequest = 19,  // `chunk`: rank asked, `segment`: rank that asks, payload: key
  kAnswer = 20,   // `chunk`: rank that asked; payload: a piece of the answer
  kRegion = 21,   // shared memory: a descriptor travels beside this frame
  kRegionGone = 22,
  kStandstill = 23,  // deadlock_watch.h; `sequence`: number of the token, `segment`: 1 for a second one; payload: what the ranks wait for
};

/// Precedes each payload on the wire (host byte order: ranks of a job run on machines of one kind; the proof of the secret checks it).
/// Epoch and sequence let a receiver drop or refuse what belongs to another ring or another operation.
struct FrameHeader {
  FrameKind kind = FrameKind::kHeartbeat;
  std::uint32_t epoch = 0;
  std::uint64_t sequence = 0;  // number of the operation in its lane, or tag of an all-gather
  std::uint32_t chunk = 0;     // index of the rank that owns the chunk
  std::uint32_t segment = 0;   // index within the chunk
  std::uint32_t bytes = 0;     // of the payload that follows
  std::uint32_t check = 0;     // fingerprint of the operation (range, dtype, op): ranks that disagree are found at the first frame
};
static_assert(sizeof(FrameHeader) == 32);

/// Upper bound of a payload; a larger one is a protocol error.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 20;

}  // namespace maypole::comm
