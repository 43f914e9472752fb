// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/comm/collective.h"

#include <deque>
#include <functional>
#include <vector>

namespace maypole::comm {

/// Ring reduce-scatter (ring_plan.h). Reads `input`, never writes it; partial sums live in pool segments; the finished own chunk goes to
/// `output`. On shared memory the incoming partial sum is read straight from the peer, so a segment costs one pass: two reads, one write.
class RingReduceScatter : public Collective {
 public:
  struct Buffers {
    const std::byte* input = nullptr;  // element 0 of the arena
    std::byte* output = nullptr;       // such that element e of the own chunk goes to output + e * size; may be the arena itself
  };
  RingReduceScatter(const CollectiveContext& context, FrameHeader header, Work work, Buffers buffers, ChunkMap map, base::DType dtype,
                    base::DType wire, ReduceOp op);

  [[nodiscard]] bool has_outgoing() const override { return next_local_ < num_local_ || !forwards_.empty(); }
  [[nodiscard]] OutgoingFrame take_outgoing() override;
  [[nodiscard]] absl::Status validate(const FrameHeader& header) const override;
  [[nodiscard]] std::byte* destination(const FrameHeader& header) override;
  [[nodiscard]] absl::Status deliver(const FrameHeader& header, const std::byte* payload) override;
  void on_sent(std::byte* buffer) override;
  [[nodiscard]] bool all_sent() const override { return !has_outgoing() && left_to_forward_ == 0; }
  [[nodiscard]] bool complete() const override;
  [[nodiscard]] std::string describe() const override;

  /// Calls `f` after each finished segment of the own chunk, in order.
  void on_own_segment(std::function<void()> f) { on_own_segment_ = std::move(f); }

  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }

 private:
  struct Forward {
    std::uint32_t chunk;
    std::uint32_t segment;
    std::byte* buffer;
    std::uint32_t bytes;
  };

  const Buffers buffers_;
  const ChunkMap map_;
  const base::DType dtype_;
  const base::DType wire_;
  const double factor_;  // 1/P for the average, applied once, at the owner
  std::uint32_t next_local_ = 0;
  std::uint32_t num_local_ = 0;
  std::deque<Forward> forwards_;         // partial sums that wait to leave, in step order
  std::vector<std::uint32_t> received_;  // [chunk]: segments received
  std::size_t left_to_receive_ = 0;
  std::size_t left_to_forward_ = 0;  // of those: segments that will be passed on
  std::size_t in_flight_ = 0;        // frames taken and not yet on_sent
  std::byte* incoming_ = nullptr;    // pool buffer that a socket is filling
  std::function<void()> on_own_segment_;
};

}  // namespace maypole::comm
