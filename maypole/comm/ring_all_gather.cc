// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/ring_all_gather.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <cstring>
#include <utility>

namespace maypole::comm {

RingAllGather::RingAllGather(const CollectiveContext& context, FrameHeader header, Work work, std::byte* data, ChunkMap map,
                             base::DType dtype, base::DType wire)
    : Collective(context, header, std::move(work)),
      data_(data),
      map_(map),
      dtype_(dtype),
      wire_(wire),
      received_(context.position.num_ranks, 0) {
  const RingPosition& at = context_.position;
  num_own_ = static_cast<std::uint32_t>(map_.num_segments(at.rank));
  for (std::size_t chunk = 0; chunk < at.num_ranks; ++chunk) {
    if (chunk != at.rank) {
      left_to_receive_ += map_.num_segments(chunk);
      left_to_forward_ += chunk == at.next() ? 0 : map_.num_segments(chunk);
    }
  }
}

OutgoingFrame RingAllGather::take_outgoing() {
  OutgoingFrame frame{header_, nullptr, this, nullptr};
  ++in_flight_;
  if (next_own_ < supplied_) {
    const model::Interval part = map_.segment(context_.position.rank, next_own_);
    frame.header.chunk = static_cast<std::uint32_t>(context_.position.rank);
    frame.header.segment = next_own_++;
    if (wire_ != dtype_) {  // round once, here, and keep what the others get
      std::byte* own = data_ + part.begin * size_of(dtype_);
      frame.buffer = context_.pool->acquire();
      context_.kernels->compress(frame.buffer, own, part.size());
      context_.kernels->decompress(own, frame.buffer, part.size());
    }
    attach(frame, part);
    return frame;
  }
  const Forward forward = forwards_.front();
  forwards_.pop_front();
  frame.header.chunk = forward.chunk;
  frame.header.segment = forward.segment;
  frame.buffer = forward.buffer;
  attach(frame, map_.segment(forward.chunk, forward.segment));
  return frame;
}

void RingAllGather::attach(OutgoingFrame& frame, const model::Interval& part) {
  frame.header.bytes = static_cast<std::uint32_t>(part.size() * size_of(wire_));
  const std::byte* place = data_ + part.begin * size_of(dtype_);
  if (frame.buffer == nullptr && context_.next_shares_memory && !context_.regions->find(place, frame.header.bytes)) {
    frame.buffer = context_.pool->acquire();
    std::memcpy(frame.buffer, place, frame.header.bytes);
  }
  frame.payload = frame.buffer != nullptr ? frame.buffer : place;
}

absl::Status RingAllGather::validate(const FrameHeader& header) const {
  const RingPosition& at = context_.position;
  if (header.chunk >= at.num_ranks || header.chunk == at.rank || header.segment != received_[header.chunk] ||
      header.segment >= map_.num_segments(header.chunk) ||
      header.bytes != map_.segment(header.chunk, header.segment).size() * size_of(wire_)) {
    return base::error(absl::StatusCode::kFailedPrecondition, "unexpected segment {} of chunk {} ({} bytes) in {}", header.segment,
                       header.chunk, header.bytes, describe());
  }
  return absl::OkStatus();
}

std::byte* RingAllGather::destination(const FrameHeader& header) {
  if (wire_ == dtype_) {
    return data_ + map_.segment(header.chunk, header.segment).begin * size_of(dtype_);
  }
  MAYPOLE_CHECK(incoming_ == nullptr);
  incoming_ = context_.pool->acquire();
  return incoming_;
}

absl::Status RingAllGather::deliver(const FrameHeader& header, const std::byte* payload) {
  std::byte* buffer = std::exchange(incoming_, nullptr);
  ++received_[header.chunk];
  --left_to_receive_;
  const model::Interval part = map_.segment(header.chunk, header.segment);
  std::byte* place = data_ + part.begin * size_of(dtype_);
  const bool pass_on = context_.position.next() != header.chunk;
  if (wire_ != dtype_) {
    context_.kernels->decompress(place, payload, part.size());
    if (pass_on && buffer == nullptr) {
      buffer = context_.pool->acquire();
      std::memcpy(buffer, payload, header.bytes);
    }
  } else if (payload != place) {
    std::memcpy(place, payload, header.bytes);
  }
  if (pass_on) {
    --left_to_forward_;
    forwards_.push_back({header.chunk, header.segment, buffer});
  } else if (buffer != nullptr) {
    context_.pool->release(buffer);
  }
  return absl::OkStatus();
}

void RingAllGather::on_sent(std::byte* buffer) {
  --in_flight_;
  if (buffer != nullptr) {
    context_.pool->release(buffer);
  }
}

std::string RingAllGather::describe() const {
  return fmt::format("all-gather {} of {} {} elements ({} segments still to come, {} of {} own segments sent, {} supplied)",
                     header_.sequence, map_.range().size(), name_of(dtype_), left_to_receive_, next_own_, num_own_, supplied_);
}

}  // namespace maypole::comm
