// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/all_reduce.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace maypole::comm {

namespace {

// Partial sums that may wait at a peer which shares memory. Few: then a sum is gathered while it is still in the processor's shared
// cache, which all halves of a large buffer are not (64 MiB: 9.0 ms with 8, 10.3 with 64). Not one or two: the owner's own cache
// answers others more slowly than the shared one does.
constexpr std::size_t kMemoryLead = 8;

FrameHeader with_kind(FrameHeader header, FrameKind kind) {
  header.kind = kind;
  return header;
}

}  // namespace

RingAllReduce::RingAllReduce(const CollectiveContext& context, FrameHeader header, Work work, std::byte* data, const ChunkMap& map,
                             base::DType dtype, ReduceOp op)
    : Collective(context, header, work),
      scatter_(context, with_kind(header, FrameKind::kReduceScatter), work, {data, data}, map, dtype, dtype, op),
      gather_(context, with_kind(header, FrameKind::kAllGather), work, data, map, dtype, dtype) {
  if (map.num_segments(context.position.rank) == 0) {
    gather_.supply_all();
  }
  scatter_.on_own_segment([this] { gather_.supply(1); });
}

Collective& RingAllReduce::half_of(const FrameHeader& header) {
  return header.kind == FrameKind::kReduceScatter ? static_cast<Collective&>(scatter_) : static_cast<Collective&>(gather_);
}

bool RingAllReduce::has_outgoing() const { return gather_.has_outgoing() || may_scatter(); }

bool RingAllReduce::may_scatter() const {
  return scatter_.has_outgoing() && (!context_.next_shares_memory || scatter_.in_flight() < kMemoryLead);
}

Collective& RingAllReduce::half_with_outgoing() {
  if (context_.next_shares_memory && gather_.has_outgoing()) {
    return gather_;
  }
  return scatter_.has_outgoing() ? static_cast<Collective&>(scatter_) : static_cast<Collective&>(gather_);
}

absl::Status RingAllReduce::validate(const FrameHeader& header) const {
  return header.kind == FrameKind::kReduceScatter ? scatter_.validate(header) : gather_.validate(header);
}

ExchangeAllReduce::ExchangeAllReduce(const CollectiveContext& context, FrameHeader header, Work work, std::span<const std::byte> vector,
                                     Operation operation)
    : Collective(context, with_kind(header, FrameKind::kExchange), std::move(work)),
      bytes_(vector.size()),
      operation_(std::move(operation)),
      vector_(context.pool->acquire()),
      incoming_(context.pool->acquire()) {
  MAYPOLE_CHECK_LE(bytes_, context.pool->segment_bytes());
  if (bytes_ > 0) {
    std::copy_n(vector.data(), bytes_, vector_);
  }
  const std::size_t rank = context.position.rank;
  const std::size_t num_ranks = context.position.num_ranks;
  const std::size_t q = std::bit_floor(num_ranks);
  const auto last_link = static_cast<std::size_t>(std::countr_zero(q));
  if (rank >= q) {
    steps_ = {{last_link, true, false, false}, {last_link, false, true, true}};
  } else {
    const bool has_guest = rank + q < num_ranks;
    if (has_guest) {
      steps_.push_back({last_link, false, true, false});
    }
    for (std::size_t k = 0; k < last_link; ++k) {
      steps_.push_back({k, true, true, false});
    }
    if (has_guest) {
      steps_.push_back({last_link, true, false, false});
    }
  }
}

ExchangeAllReduce::~ExchangeAllReduce() {
  context_.pool->release(vector_);
  context_.pool->release(incoming_);
}

bool ExchangeAllReduce::has_exchange(std::size_t link) const {
  return step_ < steps_.size() && steps_[step_].send && !sent_ && steps_[step_].link == link;
}

OutgoingFrame ExchangeAllReduce::take_exchange(std::size_t) {
  // The vector changes as soon as the partner's arrives, so what leaves is a copy: at most 64 KiB.
  OutgoingFrame frame{header_, nullptr, this, context_.pool->acquire()};
  std::copy_n(vector_, bytes_, frame.buffer);
  frame.payload = frame.buffer;
  frame.header.bytes = static_cast<std::uint32_t>(bytes_);
  ++in_flight_;
  sent_ = true;
  advance();
  return frame;
}

bool ExchangeAllReduce::ready_for(const FrameHeader&, int link) const {
  // The partner's vector is merged only after this rank's own has been taken, so that both add the same two vectors.
  return link >= 0 && step_ < steps_.size() && steps_[step_].receive && !received_ && (sent_ || !steps_[step_].send) &&
         steps_[step_].link == static_cast<std::size_t>(link);
}

absl::Status ExchangeAllReduce::validate(const FrameHeader& header) const {
  if (header.kind != FrameKind::kExchange || header.bytes != bytes_) {
    return base::error(absl::StatusCode::kFailedPrecondition, "a vector of {} bytes came for {}", header.bytes, describe());
  }
  return absl::OkStatus();
}

std::byte* ExchangeAllReduce::destination(const FrameHeader&) { return incoming_; }

absl::Status ExchangeAllReduce::deliver(const FrameHeader&, const std::byte* payload) {
  if (steps_[step_].replace) {
    std::copy_n(payload, bytes_, vector_);
  } else {
    operation_.merge(vector_, payload);
  }
  received_ = true;
  advance();
  return absl::OkStatus();
}

bool ExchangeAllReduce::all_sent() const {
  for (std::size_t s = step_; s < steps_.size(); ++s) {
    if (steps_[s].send && !(s == step_ && sent_)) {
      return false;
    }
  }
  return true;
}

void ExchangeAllReduce::advance() {
  const Step& step = steps_[step_];
  if (sent_ != step.send || received_ != step.receive) {
    return;
  }
  sent_ = received_ = false;
  if (++step_ == steps_.size()) {
    operation_.finish(vector_);
    finished_ = true;
  }
}

void ExchangeAllReduce::on_sent(std::byte* buffer) {
  --in_flight_;
  context_.pool->release(buffer);
}

std::string ExchangeAllReduce::describe() const {
  return fmt::format("logarithmic all-reduce {} of {} bytes (step {} of {})", header_.sequence, bytes_, step_, steps_.size());
}

bool exchange_is_faster(std::size_t bytes, std::size_t num_ranks, const EdgeCost& cost, std::size_t ring_steps, double ring_share) {
  const std::size_t q = std::bit_floor(num_ranks);
  const double steps = std::countr_zero(q) + (q == num_ranks ? 0 : 2);
  const double n = static_cast<double>(bytes);
  const double by_exchange = steps * (cost.alpha_s + n * cost.beta_s_per_byte);
  const double by_ring = static_cast<double>(ring_steps) * cost.alpha_s + ring_share * n * cost.beta_s_per_byte;
  return by_exchange < by_ring;
}

}  // namespace maypole::comm
