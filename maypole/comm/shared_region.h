// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"
#include "maypole/comm/communicator.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace maypole::comm {

/// A mapping that this process writes. Shared ones lie in a memfd that peers map read-only, so that a peer, even one that was stopped
/// for long, can never write here. Private ones are anonymous memory with huge pages where the kernel has them.
class SharedRegion : public SharedMemory {
 public:
  /// Errors: kResourceExhausted with the size and the kernel's reason.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> create(std::size_t bytes, std::uint32_t id, bool shared);
  ~SharedRegion() override;
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const override { return bytes_; }
  [[nodiscard]] std::uint32_t id() const { return id_; }
  [[nodiscard]] int fd() const { return fd_.get(); }  // -1 when private
  /// Calls `f` when the region ends; at most one.
  void on_gone(std::function<void(std::uint32_t id)> f) { on_gone_ = std::move(f); }

 private:
  SharedRegion(std::uint32_t id, base::Fd fd, void* mapping, std::size_t mapped, std::size_t bytes);

  std::uint32_t id_;
  base::Fd fd_;
  void* mapping_;
  std::size_t mapped_;
  std::span<std::byte> bytes_;
  std::function<void(std::uint32_t)> on_gone_;
};

/// A peer's region, mapped read-only.
class PeerRegion {
 public:
  static absl::StatusOr<PeerRegion> map(base::Fd fd);
  ~PeerRegion();
  PeerRegion(PeerRegion&& other) noexcept;
  PeerRegion& operator=(PeerRegion&& other) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit PeerRegion(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

/// Finds the region that holds an address. Thread-safe.
class RegionTable {
 public:
  struct Place {
    std::uint32_t region = 0;
    std::uint64_t offset = 0;
  };
  void add(const SharedRegion& region);
  void remove(std::uint32_t id);
  /// In a forked child: what it writes from now on is its own. (No lock: the thread that may have held it is not in the child.)
  void make_private() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  /// The place of [data, data + bytes), if one region holds all of it.
  [[nodiscard]] std::optional<Place> find(const std::byte* data, std::size_t bytes) const;

 private:
  struct Entry {
    std::size_t size;
    std::uint32_t id;
    int fd;  // borrowed; -1: private already
  };
  mutable base::Mutex mutex_;
  std::map<const std::byte*, Entry> by_address_ ABSL_GUARDED_BY(mutex_);
};

/// Segment-sized buffers for partial sums, in regions that shared-memory peers can read. Owned by the progress thread. Grows to the
/// largest number of segments ever in flight and keeps that: nothing is allocated in the steady state.
class SegmentPool {
 public:
  using NewRegion = std::function<absl::StatusOr<std::shared_ptr<SharedRegion>>(std::size_t bytes)>;
  SegmentPool(std::size_t segment_bytes, NewRegion new_region) : segment_bytes_(segment_bytes), new_region_(std::move(new_region)) {}

  /// Never null: where no more memory can be shared it is memory that no peer reads, and failure() says why.
  [[nodiscard]] std::byte* acquire();
  [[nodiscard]] const absl::Status& failure() const { return failure_; }
  void release(std::byte* buffer) { free_.push_back(buffer); }
  [[nodiscard]] std::size_t segment_bytes() const { return segment_bytes_; }
  [[nodiscard]] std::size_t in_use() const { return total_ - free_.size(); }

 private:
  std::size_t segment_bytes_;
  NewRegion new_region_;
  absl::Status failure_;
  std::vector<std::shared_ptr<SharedRegion>> slabs_;
  std::vector<std::byte*> free_;  // last in, first out: the buffer most likely to be in cache
  std::size_t total_ = 0;
};

}  // namespace maypole::comm
