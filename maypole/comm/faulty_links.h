// SPDX-License-Identifier: Apache-2.0
#pragma once

// Links that break: put between the ends of an in-process ring, for tests of what happens then.

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"
#include "maypole/base/units.h"
#include "maypole/comm/connections.h"
#include "maypole/comm/frame.h"

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace maypole::comm {

enum class FaultKind : std::uint8_t {
  kCut,     // the link breaks in the middle of the frame
  kDrop,    // with it all links of the rank that sends the frame, as when its process ends
  kFreeze,  // no byte to or from that rank moves any more, and no link says so, as when its process is stopped
};

/// Happens when `rank` sends its `frame`-th data frame (the first one is 1) after the fault was given.
struct LinkFault {
  FaultKind kind = FaultKind::kCut;
  int rank = 0;
  std::uint64_t frame = 1;
};

/// Passes frames on between the ends of socket links, each frame after a random delay, until a fault happens. One thread does it.
class FaultyLinks {
 public:
  /// Puts itself between `ends` (make_inproc_connections(), InprocKind::kStream), of which it needs none afterwards. longest_delay: of a
  /// frame.
  static absl::StatusOr<std::unique_ptr<FaultyLinks>> put_between(std::vector<Connections>& ends, std::uint64_t seed,
                                                                  base::Nanoseconds longest_delay);
  ~FaultyLinks() = default;
  FaultyLinks(const FaultyLinks&) = delete;
  FaultyLinks& operator=(const FaultyLinks&) = delete;

  /// Thread: any. One fault at a time.
  void arm(const LinkFault& fault);
  /// Whether the fault has happened.
  [[nodiscard]] bool happened() const;

 private:
  struct Frame {
    std::vector<std::byte> bytes;
    base::TimePoint due;
  };
  /// One direction of one socket.
  struct Way {
    int from = 0;  // descriptors; the link owns them
    int to = 0;
    int sender = 0;  // ranks
    int receiver = 0;
    std::size_t link = 0;
    std::vector<std::byte> partial{};  // a frame that is being read
    std::deque<Frame> waiting{};
    std::size_t sent = 0;  // of the first one that waits
    bool no_more = false;  // comes from the sender; what waits still goes to the receiver
    bool ended = false;
  };

  FaultyLinks(std::uint64_t seed, base::Nanoseconds longest_delay) : random_(seed), longest_delay_(longest_delay) {}
  absl::Status take_over(base::Fd& end, int rank, int peer, std::size_t link);
  void run(const std::stop_token& stop);
  [[nodiscard]] bool reads(const Way& way) const;
  void read(Way& way, base::TimePoint now);
  void write(Way& way, base::TimePoint now);
  void frame_is_whole(Way& way, base::TimePoint now);
  /// The fault that this frame brings about.
  [[nodiscard]] std::optional<LinkFault> due_fault(const Way& way, FrameKind kind);
  void bring_about(const LinkFault& fault, Way& way);
  void close(Way& way);

  std::mt19937_64 random_;
  base::Nanoseconds longest_delay_;
  std::vector<base::Fd> sockets_;
  std::vector<Way> ways_;
  int frozen_ = -1;  // a rank
  mutable base::Mutex mutex_;
  std::optional<LinkFault> armed_ ABSL_GUARDED_BY(mutex_);
  bool happened_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: it uses what is above
};

}  // namespace maypole::comm
