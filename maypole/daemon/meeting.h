// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the ring of an epoch meets when launchers start its workers: rank 0's shim listens in the place where it is started, and must know
// by which of its addresses the others see it. The shims tell each other by files in the epoch's folder, so that no daemon need be alive:
//
//   seen_from   the addresses of a rank on another server, which rank 0 asks its own routes about
//   meeting     rank 0's address and ports, when it listens
//
// All on one server meet at its loopback address.

#include "maypole/base/fd.h"

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <vector>

namespace maypole::daemon {

enum class MeetingRole { kNone, kHost, kHostAlone, kWitness, kGuest };  // kHostAlone: all are on its server

struct MeetingOrder {
  MeetingRole role = MeetingRole::kNone;  // kNone: the environment says where
  std::string folder;                     // of the epoch
  bool operator==(const MeetingOrder&) const = default;
};

struct MeetingPlace {
  std::vector<std::string> variables;  // for the worker
  base::Fd socket;                     // that rank 0 listens at, and its worker inherits
};

/// One attempt, which does not block; nothing: the others are not there yet. Errors: no address of this place is seen by the witness.
[[nodiscard]] absl::StatusOr<std::optional<MeetingPlace>> try_to_meet(const MeetingOrder& order);

}  // namespace maypole::daemon
