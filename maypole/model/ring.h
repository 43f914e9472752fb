// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ring: where the scheduler and the runtime meet. The order of `members` is the order on the wire: member k sends to member k+1.

#include "maypole/base/units.h"

#include <cstdint>
#include <string>
#include <vector>

namespace maypole::model {

/// One worker of a ring; its rank is its position.
struct RingMember {
  std::string host;        // host entry of the launcher, or server id of the scheduler
  std::string address;     // numeric IPv4 or IPv6 address on which its data listener answers
  std::uint16_t port = 0;  // of that listener
  std::string machine;     // boot id and network namespace: equal means that shared memory and local sockets work
  bool operator==(const RingMember&) const = default;
};

/// One incarnation of a job's ring.
struct Ring {
  std::string job;
  std::uint32_t epoch = 1;
  std::vector<RingMember> members;
  std::vector<base::Bandwidth> edge_bandwidth;  // [k]: edge from member k to member k+1 mod size; empty: no edge is paced
};

}  // namespace maypole::model
