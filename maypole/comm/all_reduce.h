// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/comm/collective.h"
#include "maypole/comm/ring_all_gather.h"
#include "maypole/comm/ring_reduce_scatter.h"

#include <functional>
#include <span>
#include <vector>

namespace maypole::comm {

/// Ring all-reduce of a plain buffer, in place: a reduce-scatter whose finished segments are gathered at once, so the link does not
/// rest between the halves.
class RingAllReduce : public Collective {
 public:
  RingAllReduce(const CollectiveContext& context, FrameHeader header, Work work, std::byte* data, const ChunkMap& map, base::DType dtype,
                ReduceOp op);

  [[nodiscard]] bool has_outgoing() const override;
  [[nodiscard]] OutgoingFrame take_outgoing() override { return half_with_outgoing().take_outgoing(); }
  [[nodiscard]] absl::Status validate(const FrameHeader& header) const override;
  [[nodiscard]] std::byte* destination(const FrameHeader& header) override { return half_of(header).destination(header); }
  [[nodiscard]] absl::Status deliver(const FrameHeader& header, const std::byte* payload) override {
    return half_of(header).deliver(header, payload);
  }
  void on_sent(std::byte*) override {}  // the halves observe their own frames
  [[nodiscard]] bool all_sent() const override { return scatter_.all_sent() && gather_.all_sent(); }
  [[nodiscard]] bool complete() const override { return scatter_.complete() && gather_.complete(); }
  [[nodiscard]] std::string describe() const override { return "all-reduce: " + scatter_.describe() + ", " + gather_.describe(); }

 private:
  [[nodiscard]] bool may_scatter() const;
  Collective& half_of(const FrameHeader& header);
  Collective& half_with_outgoing();

  RingReduceScatter scatter_;
  RingAllGather gather_;
};

/// Logarithmic all-reduce of a small buffer by recursive doubling: in step k, rank r and rank r XOR 2^k exchange whole vectors and add.
///
/// With P not a power of two, Q the largest power of two below P: each rank r >= Q first hands its vector to r - Q and gets the result
/// at the end, over exchange link log2 Q. Cost: log2 Q (+2) start-ups and as many times n bytes. Each pair adds the same two numbers, so
/// all ranks hold equal bits. The vector lives in two pool segments (current, incoming) until it is written back.
class ExchangeAllReduce : public Collective {
 public:
  /// `merge(into, other)` combines two vectors; `finish(vector)` runs once at the end and stores the result.
  struct Operation {
    std::function<void(std::byte* into, const std::byte* other)> merge;
    std::function<void(const std::byte* vector)> finish;
  };
  ExchangeAllReduce(const CollectiveContext& context, FrameHeader header, Work work, std::span<const std::byte> vector,
                    Operation operation);
  ~ExchangeAllReduce() override;

  [[nodiscard]] bool has_exchange(std::size_t link) const override;
  [[nodiscard]] OutgoingFrame take_exchange(std::size_t link) override;
  [[nodiscard]] bool ready_for(const FrameHeader& header, int link) const override;
  [[nodiscard]] absl::Status validate(const FrameHeader& header) const override;
  [[nodiscard]] std::byte* destination(const FrameHeader& header) override;
  [[nodiscard]] absl::Status deliver(const FrameHeader& header, const std::byte* payload) override;
  void on_sent(std::byte* buffer) override;
  [[nodiscard]] bool all_sent() const override;
  [[nodiscard]] bool complete() const override { return finished_ && in_flight_ == 0; }
  [[nodiscard]] std::string describe() const override;

 private:
  /// One exchange: send the vector, receive one, or both; `replace` takes the received vector as the result.
  struct Step {
    std::size_t link;
    bool send;
    bool receive;
    bool replace;
  };
  void advance();

  const std::size_t bytes_;
  const Operation operation_;
  std::vector<Step> steps_;
  std::size_t step_ = 0;
  bool sent_ = false;      // of the current step
  bool received_ = false;  // of the current step
  bool finished_ = false;
  std::size_t in_flight_ = 0;
  std::byte* vector_;
  std::byte* incoming_;
};

/// What all-reduce, reduce-scatter and all-gather of `bytes` cost by either way, from the measured start-up time and inverse bandwidth.
[[nodiscard]] bool exchange_is_faster(std::size_t bytes, std::size_t num_ranks, const EdgeCost& cost, std::size_t ring_steps,
                                      double ring_share);

}  // namespace maypole::comm
