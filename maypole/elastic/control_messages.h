// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a worker of an elastic run and its coordinator say to each other. Each message is one packet of the worker's control socket,
// which the agent of its host carries to the launcher and back.
//
//   worker                         coordinator
//   kReady                   ->                  I wait for a place (a founder in init(), a newcomer in its loop)
//                            <-    kAnnounce     an epoch, with you in it (or, after kStopped, without: you leave)
//   kEntered                 ->                  its ring stands and my state is the run's, at this step
//   kLooping                 ->                  from here on I can stop between two steps
//                            <-    kStop         stop this epoch; the members agree among themselves after which step
//   kStopped                 ->                  I have; or this epoch broke, for this reason, after this step
//   kFinished                ->                  I have trained to the end; as after kStopped, I wait
//                            <-    kEnd          all have: your loop may end
//   kAlive                   ->                  every quarter of the time after which silence means lost

#include "maypole/elastic/membership.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace maypole::elastic {

/// One packet holds at most this much.
inline constexpr std::size_t kMaxPacketBytes = 64U << 10U;

struct WorkerReport {
  enum class Kind : std::uint8_t { kReady = 1, kLooping, kStopped, kEntered, kFinished, kAlive };
  Kind kind = Kind::kAlive;
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;  // steps committed
  double seconds = 0;      // kEntered: for how long no step was committed here
  std::string text;        // kReady, kLooping: what the worker trains, a line a fact; kStopped: why, "" where it was asked to
  bool operator==(const WorkerReport&) const = default;
};

struct Order {
  enum class Kind : std::uint8_t { kAnnounce = 1, kStop, kEnd, kRefuse };
  Kind kind = Kind::kStop;
  Membership membership;  // kAnnounce; kStop: its epoch only
  std::string text;       // kRefuse: why this worker cannot take part
  bool operator==(const Order&) const = default;
};

[[nodiscard]] std::vector<std::byte> encode(const WorkerReport& report);
[[nodiscard]] std::vector<std::byte> encode(const Order& order);
[[nodiscard]] absl::StatusOr<WorkerReport> decode_report(std::span<const std::byte> bytes);
[[nodiscard]] absl::StatusOr<Order> decode_order(std::span<const std::byte> bytes);

}  // namespace maypole::elastic
