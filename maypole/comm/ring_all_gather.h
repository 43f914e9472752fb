// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/comm/collective.h"

#include <deque>
#include <vector>

namespace maypole::comm {

/// Ring all-gather (ring_plan.h), and with a rooted ChunkMap the pipelined ring broadcast. Segments land in their final place and are
/// passed on from there. Own segments leave once they are supplied, so an all-gather can start while its input is still being made.
class RingAllGather : public Collective {
 public:
  RingAllGather(const CollectiveContext& context, FrameHeader header, Work work, std::byte* data, ChunkMap map, base::DType dtype,
                base::DType wire);

  /// The first `n` more segments of the own chunk are final.
  void supply(std::uint32_t n) {
    supplied_ += n;
    closed_ = supplied_ == num_own_;
  }
  /// All of it is, also where this rank owns nothing: before this call the all-gather does not end.
  void supply_all() { supply(num_own_ - supplied_); }

  [[nodiscard]] bool has_outgoing() const override { return next_own_ < supplied_ || !forwards_.empty(); }
  [[nodiscard]] OutgoingFrame take_outgoing() override;
  [[nodiscard]] absl::Status validate(const FrameHeader& header) const override;
  [[nodiscard]] std::byte* destination(const FrameHeader& header) override;
  [[nodiscard]] absl::Status deliver(const FrameHeader& header, const std::byte* payload) override;
  void on_sent(std::byte* buffer) override;
  [[nodiscard]] bool all_sent() const override { return closed_ && next_own_ == num_own_ && forwards_.empty() && left_to_forward_ == 0; }
  [[nodiscard]] bool complete() const override { return left_to_receive_ == 0 && in_flight_ == 0 && all_sent(); }
  [[nodiscard]] std::string describe() const override;

 private:
  struct Forward {
    std::uint32_t chunk;
    std::uint32_t segment;
    std::byte* buffer;  // the compressed bytes, or null: from the final place
  };
  /// Fills payload and size; on shared memory outside any region the bytes are copied into a segment first.
  void attach(OutgoingFrame& frame, const model::Interval& part);

  std::byte* const data_;
  const ChunkMap map_;
  const base::DType dtype_;
  const base::DType wire_;
  std::uint32_t num_own_ = 0;
  std::uint32_t supplied_ = 0;
  bool closed_ = false;  // the own chunk is final
  std::uint32_t next_own_ = 0;
  std::deque<Forward> forwards_;
  std::vector<std::uint32_t> received_;  // [chunk]
  std::size_t left_to_receive_ = 0;
  std::size_t left_to_forward_ = 0;  // of those: segments that will be passed on
  std::size_t in_flight_ = 0;
  std::byte* incoming_ = nullptr;  // pool buffer that a socket is filling; compressed only
};

}  // namespace maypole::comm
