// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/comm/collective.h"
#include "maypole/comm/connections.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace maypole::comm {

/// The collectives in motion on one lane, and the sink of the frames that the previous rank sends on it. Progress thread only.
///
/// A frame may come before this rank has started its operation. On the reduce-scatter lane it is set aside (the peer's gradient was
/// ready first), so that no frame behind it waits; on the other lanes it, and with it the lane, waits at the sender. On the user lane
/// an operation therefore sends nothing before all earlier ones have sent everything: whoever waits for one of those must get it.
class LaneState : public FrameSink {
 public:
  LaneState(Lane lane, const CollectiveContext& context, std::string previous)
      : lane_(lane), context_(context), previous_(std::move(previous)) {}
  ~LaneState() override { clear(); }
  LaneState(const LaneState&) = delete;
  LaneState& operator=(const LaneState&) = delete;

  /// Takes an operation; frames set aside for it are delivered. `rank` orders sends: lowest first, then by sequence.
  [[nodiscard]] absl::Status start(std::unique_ptr<Collective> collective, std::int64_t priority, base::TimePoint now);
  [[nodiscard]] Collective* find(std::uint64_t sequence);
  /// The operation that sends next to the next rank, or null.
  [[nodiscard]] Collective* sender();
  /// The operation that sends next over exchange link k, or null.
  [[nodiscard]] Collective* exchanger(std::size_t link);
  /// Removes and returns operations that are complete.
  [[nodiscard]] std::vector<std::unique_ptr<Collective>> take_complete();
  /// Ends every operation with `reason`.
  void fail(const absl::Status& reason);

  [[nodiscard]] bool empty() const { return operations_.empty(); }
  [[nodiscard]] std::size_t size() const { return operations_.size(); }
  /// Whether an operation began after `time`.
  [[nodiscard]] bool has_younger_than(base::TimePoint time) const;
  /// Start time of the oldest operation, and what it is.
  [[nodiscard]] std::pair<base::TimePoint, std::string> oldest() const;
  /// The operation that a caller has waited for longest, without a limit.
  [[nodiscard]] std::optional<Wait> waited() const;

  [[nodiscard]] absl::StatusOr<bool> accept(const FrameHeader& header) override { return accept_from(header, -1, previous_); }
  [[nodiscard]] std::byte* destination(const FrameHeader& header) override;
  [[nodiscard]] absl::Status deliver(const FrameHeader& header, const std::byte* payload) override;
  [[nodiscard]] std::uint64_t received_bytes() const { return received_bytes_; }
  /// As accept(), for a frame that `peer` sent over exchange link `link`.
  [[nodiscard]] absl::StatusOr<bool> accept_from(const FrameHeader& header, int link, const std::string& peer);
  /// This process stood still for `gap`: its operations are not older for it.
  void forgive(base::Nanoseconds gap);

 private:
  struct Entry {
    std::unique_ptr<Collective> collective;
    std::int64_t priority;
    base::TimePoint started;
  };
  struct SetAside {
    FrameHeader header;
    std::byte* buffer;
  };
  void clear();

  Lane lane_;
  const CollectiveContext& context_;
  std::string previous_;
  std::map<std::uint64_t, Entry> operations_;                                  // by sequence or tag
  std::map<std::pair<std::int64_t, std::uint64_t>, Collective*> by_priority_;  // the same, in sending order
  std::map<std::uint64_t, std::deque<SetAside>> set_aside_;                    // frames of operations not yet started here
  std::size_t set_aside_bytes_ = 0;
  std::uint64_t received_bytes_ = 0;
  std::byte* set_aside_buffer_ = nullptr;  // a socket is filling it
};

}  // namespace maypole::comm
