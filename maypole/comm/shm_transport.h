// SPDX-License-Identifier: Apache-2.0
#pragma once

// Frames between processes of one host: only descriptors move, the receiver reads the sender's memory in place.
//
// Each end of a link owns one ShmSide in a region that it alone writes and the peer maps read-only. Per lane it holds a queue of
// descriptors (written by the sender) and a count of consumed descriptors (written by the receiver, in its own side). A frame is
// released at the sender when the peer's consumed count passes it.
//
// Sleeping. A progress thread that is about to block sets `sleeping` in its sides, looks at the queues once more, and blocks on an
// eventfd. Whoever produces or consumes stores its count first and then looks at the peer's `sleeping`: with sequentially consistent
// stores and loads one of the two always sees the other (Dekker), so no wake-up is lost.

#include "maypole/base/fd.h"
#include "maypole/comm/connections.h"
#include "maypole/comm/shared_region.h"
#include "maypole/comm/transport.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace maypole::comm {

struct ShmDescriptor {
  FrameHeader header;
  std::uint32_t region;
  std::uint32_t unused;
  std::uint64_t offset;
};

inline constexpr std::size_t kShmQueue = 64;  // descriptors per lane
inline constexpr int kNumDataLanes = 3;       // all but control

struct ShmLane {
  alignas(64) std::atomic<std::uint64_t> produced;
  alignas(64) std::atomic<std::uint64_t> consumed;
  std::array<ShmDescriptor, kShmQueue> queue;
};

struct ShmSide {
  alignas(64) std::atomic<std::uint32_t> sleeping;
  std::array<ShmLane, kNumDataLanes> lanes;
};

/// Both ends' shared state of one link, and the peer's regions.
class ShmPort {
 public:
  /// Sends this end's side and eventfd over the link's local socket. Every rank offers on all its links before it meets any peer:
  /// around a ring, waiting link by link would be waiting in a circle.
  static absl::StatusOr<std::unique_ptr<ShmPort>> offer(int socket, int own_event, const std::string& peer);
  /// Receives the peer's; blocks up to the deadline. Must succeed before anything else is called.
  [[nodiscard]] absl::Status meet(int socket, const std::string& peer, base::Nanoseconds deadline);

  [[nodiscard]] ShmSide& own() { return *reinterpret_cast<ShmSide*>(own_->bytes().data()); }
  [[nodiscard]] const ShmSide& peer() const { return *reinterpret_cast<const ShmSide*>(peer_->bytes().data()); }
  void wake_peer_if_sleeping();

  void add_peer_region(std::uint32_t id, PeerRegion region) {
    regions_.insert_or_assign(id, std::make_unique<PeerRegion>(std::move(region)));
  }
  void remove_peer_region(std::uint32_t id) { regions_.erase(id); }
  /// Null when the region is not (yet) known; an error when the range lies outside it.
  [[nodiscard]] absl::StatusOr<const std::byte*> at(const ShmDescriptor& descriptor) const;

 private:
  explicit ShmPort(std::shared_ptr<SharedRegion> own) : own_(std::move(own)) {}

  std::shared_ptr<SharedRegion> own_;
  std::optional<PeerRegion> peer_;
  base::Fd peer_event_;
  std::unordered_map<std::uint32_t, std::unique_ptr<PeerRegion>> regions_;
};

class ShmWriter : public FrameWriter {
 public:
  ShmWriter(ShmPort& port, int lane, const RegionTable& regions) : port_(port), lane_(lane), regions_(regions) {}
  [[nodiscard]] bool writable() const override { return outstanding_.size() < kShmQueue; }
  /// The payload must lie in a region of this process (or be empty); else the next pump() fails.
  void write(const OutgoingFrame& frame) override;
  [[nodiscard]] absl::StatusOr<bool> pump() override;
  /// Whether pump() would release something.
  [[nodiscard]] bool releasable() const;

 private:
  struct Outstanding {
    SendObserver* observer;
    std::byte* buffer;
  };
  ShmPort& port_;
  int lane_;
  const RegionTable& regions_;
  std::deque<Outstanding> outstanding_;  // written and not yet consumed, in order
  std::uint64_t released_ = 0;
  bool broken_ = false;  // a payload lay nowhere that the peer could read
};

class ShmReader : public FrameReader {
 public:
  ShmReader(ShmPort& port, int lane) : port_(port), lane_(lane) {}
  [[nodiscard]] absl::StatusOr<bool> poll(FrameSink& sink) override;
  [[nodiscard]] bool stalled() const override { return stalled_; }
  /// Whether a frame is there, accepted or not.
  [[nodiscard]] bool pending() const;

 private:
  ShmPort& port_;
  int lane_;
  std::uint64_t next_ = 0;
  bool stalled_ = false;
};

}  // namespace maypole::comm
