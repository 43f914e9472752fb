// SPDX-License-Identifier: Apache-2.0
#pragma once

// A collective in motion: what it wants to send next, and what it does with what arrives. Owned and called by the progress thread.

#include "maypole/comm/communicator.h"
#include "maypole/comm/frame.h"
#include "maypole/comm/reduce_kernels.h"
#include "maypole/comm/ring_plan.h"
#include "maypole/comm/shared_region.h"
#include "maypole/comm/transport.h"
#include "maypole/comm/work.h"

#include <absl/status/statusor.h>

#include <string>

namespace maypole::comm {

/// What every collective of one communicator shares.
struct CollectiveContext {
  RingPosition position;
  std::uint32_t epoch = 0;
  SegmentPool* pool = nullptr;
  const RegionTable* regions = nullptr;
  bool next_shares_memory = false;      // the next rank reads this rank's memory in place
  bool exchange_shares_memory = false;  // so do some peers of the logarithmic algorithms
  const ReduceKernels* kernels = nullptr;
};

class Collective : public SendObserver {
 public:
  Collective(const CollectiveContext& context, FrameHeader header, Work work)
      : context_(context), header_(header), work_(std::move(work)) {}

  /// Sends of this rank to the next one.
  [[nodiscard]] virtual bool has_outgoing() const { return false; }
  [[nodiscard]] virtual OutgoingFrame take_outgoing() { return {}; }
  /// Sends over exchange link k.
  [[nodiscard]] virtual bool has_exchange(std::size_t) const { return false; }
  [[nodiscard]] virtual OutgoingFrame take_exchange(std::size_t) { return {}; }

  /// As FrameSink, for frames of this collective; `link` is -1 for the previous rank, else the exchange link.
  [[nodiscard]] virtual bool ready_for(const FrameHeader&, int link) const { return link < 0; }
  /// Whether the frame is the one that must come next; called before the two below. Errors: it is not.
  [[nodiscard]] virtual absl::Status validate(const FrameHeader& header) const = 0;
  [[nodiscard]] virtual std::byte* destination(const FrameHeader& header) = 0;
  [[nodiscard]] virtual absl::Status deliver(const FrameHeader& header, const std::byte* payload) = 0;

  /// Nothing more will be handed out by take_outgoing() and take_exchange().
  [[nodiscard]] virtual bool all_sent() const = 0;
  /// Everything has been received and every sent byte is no longer needed.
  [[nodiscard]] virtual bool complete() const = 0;
  /// For error messages: what it is and how far it got.
  [[nodiscard]] virtual std::string describe() const = 0;

  [[nodiscard]] const Work& work() const { return work_; }
  [[nodiscard]] const FrameHeader& header() const { return header_; }

 protected:
  const CollectiveContext& context_;
  FrameHeader header_;  // template of every frame: kind, epoch, sequence, check
  Work work_;
};

/// Fingerprint of what all ranks must agree on.
[[nodiscard]] std::uint32_t fingerprint(const model::BlockRange& range, base::DType dtype, base::DType wire, std::uint32_t kind);

}  // namespace maypole::comm
