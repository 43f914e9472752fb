// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/ring_reduce_scatter.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <cstring>
#include <utility>

namespace maypole::comm {

std::uint32_t fingerprint(const model::BlockRange& range, base::DType dtype, base::DType wire, std::uint32_t kind) {
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const std::uint64_t value : {std::uint64_t{range.begin}, std::uint64_t{range.end}, std::uint64_t{range.block}, std::uint64_t(dtype),
                                    std::uint64_t(wire), std::uint64_t{kind}}) {
    hash = (hash ^ value) * 1099511628211ULL;
    hash ^= hash >> 29;
  }
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

RingReduceScatter::RingReduceScatter(const CollectiveContext& context, FrameHeader header, Work work, Buffers buffers, ChunkMap map,
                                     base::DType dtype, base::DType wire, ReduceOp op)
    : Collective(context, header, std::move(work)),
      buffers_(buffers),
      map_(map),
      dtype_(dtype),
      wire_(wire),
      factor_(op == ReduceOp::kAverage ? 1.0 / static_cast<double>(context.position.num_ranks) : 1.0),
      received_(context.position.num_ranks, 0) {
  const RingPosition& at = context_.position;
  num_local_ = static_cast<std::uint32_t>(map_.num_segments(at.reduce_scatter_send(0)));
  for (std::size_t chunk = 0; chunk < at.num_ranks; ++chunk) {
    if (chunk != at.reduce_scatter_send(0)) {
      left_to_receive_ += map_.num_segments(chunk);
      left_to_forward_ += chunk == at.rank ? 0 : map_.num_segments(chunk);
    }
  }
}

OutgoingFrame RingReduceScatter::take_outgoing() {
  OutgoingFrame frame{header_, nullptr, this, nullptr};
  ++in_flight_;
  if (next_local_ == num_local_) {
    const Forward forward = forwards_.front();
    forwards_.pop_front();
    frame.header.chunk = forward.chunk;
    frame.header.segment = forward.segment;
    frame.header.bytes = forward.bytes;
    frame.payload = frame.buffer = forward.buffer;
    return frame;
  }
  const std::size_t chunk = context_.position.reduce_scatter_send(0);
  const model::Interval part = map_.segment(chunk, next_local_);
  const std::byte* local = buffers_.input + part.begin * size_of(dtype_);
  frame.header.chunk = static_cast<std::uint32_t>(chunk);
  frame.header.segment = next_local_++;
  frame.header.bytes = static_cast<std::uint32_t>(part.size() * size_of(wire_));
  if (wire_ != dtype_) {
    frame.buffer = context_.pool->acquire();
    context_.kernels->compress(frame.buffer, local, part.size());
  } else if (context_.next_shares_memory && !context_.regions->find(local, frame.header.bytes)) {
    frame.buffer = context_.pool->acquire();
    std::memcpy(frame.buffer, local, frame.header.bytes);
  }
  frame.payload = frame.buffer != nullptr ? frame.buffer : local;
  return frame;
}

absl::Status RingReduceScatter::validate(const FrameHeader& header) const {
  const RingPosition& at = context_.position;
  if (header.chunk >= at.num_ranks || header.chunk == at.reduce_scatter_send(0) || header.segment != received_[header.chunk] ||
      header.segment >= map_.num_segments(header.chunk) ||
      header.bytes != map_.segment(header.chunk, header.segment).size() * size_of(wire_)) {
    return base::error(absl::StatusCode::kFailedPrecondition, "unexpected segment {} of chunk {} ({} bytes) in {}", header.segment,
                       header.chunk, header.bytes, describe());
  }
  return absl::OkStatus();
}

std::byte* RingReduceScatter::destination(const FrameHeader&) {
  MAYPOLE_CHECK(incoming_ == nullptr);
  incoming_ = context_.pool->acquire();
  return incoming_;
}

absl::Status RingReduceScatter::deliver(const FrameHeader& header, const std::byte* payload) {
  const RingPosition& at = context_.position;
  std::byte* buffer = std::exchange(incoming_, nullptr);
  ++received_[header.chunk];
  --left_to_receive_;
  const model::Interval part = map_.segment(header.chunk, header.segment);
  const std::byte* local = buffers_.input + part.begin * size_of(dtype_);
  if (header.chunk == at.rank) {
    std::byte* out = buffers_.output + part.begin * size_of(dtype_);
    if (wire_ != dtype_) {
      context_.kernels->add_decompressed(out, payload, local, part.size(), factor_);
    } else if (factor_ != 1.0) {
      context_.kernels->add_scaled(dtype_, out, payload, local, part.size(), factor_);
    } else {
      context_.kernels->add(dtype_, out, payload, local, part.size());
    }
    if (buffer != nullptr) {
      context_.pool->release(buffer);
    }
    if (on_own_segment_) {
      on_own_segment_();
    }
    return absl::OkStatus();
  }
  if (buffer == nullptr) {
    buffer = context_.pool->acquire();
  }
  if (wire_ != dtype_) {
    context_.kernels->add_compressed(buffer, payload, local, part.size());
  } else {
    context_.kernels->add(dtype_, buffer, payload, local, part.size());
  }
  --left_to_forward_;
  forwards_.push_back({header.chunk, header.segment, buffer, header.bytes});
  return absl::OkStatus();
}

void RingReduceScatter::on_sent(std::byte* buffer) {
  --in_flight_;
  if (buffer != nullptr) {
    context_.pool->release(buffer);
  }
}

bool RingReduceScatter::complete() const { return left_to_receive_ == 0 && in_flight_ == 0 && !has_outgoing(); }

std::string RingReduceScatter::describe() const {
  return fmt::format("reduce-scatter {} of {} {} elements ({} segments still to come, {} of {} local segments sent)", header_.sequence,
                     map_.range().size(), name_of(dtype_), left_to_receive_, next_local_, num_local_);
}

}  // namespace maypole::comm
