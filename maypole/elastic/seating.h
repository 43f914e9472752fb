// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who sits where, for a run whose ring is given by hosts: a seat is a host, in ring order. Values in, values out.

#include "maypole/base/units.h"
#include "maypole/elastic/membership.h"

#include <span>
#include <string>
#include <vector>

namespace maypole::elastic {

using Seats = std::vector<std::string>;  // [position in the ring]: host

/// [position in the ring]: what is reserved on the way to the next. One: on every way; none: nothing is.
using EdgeRates = std::vector<base::Bandwidth>;

/// The rates of a ring of `size` members. Where seats stayed empty, a way leads over several of those that were reserved, so that none
/// gets more than the least of them.
[[nodiscard]] EdgeRates rates_of(const EdgeRates& rates, std::size_t size);

/// A worker and the host that it runs on.
struct Sitter {
  WorkerId worker;
  std::string host;
};

/// Hosts of seats that are left when each sitter has taken one of its host, in seat order.
[[nodiscard]] Seats vacant(const Seats& seats, std::span<const Sitter> sitters);

/// Those who have no seat when each takes one of its host, in the order given: the last ones of a host that has too many.
[[nodiscard]] std::vector<WorkerId> surplus(const Seats& seats, std::span<const Sitter> sitters);

/// The members in seat order: survivors go before newcomers, seats that nobody can take are left out. Where no survivor has a seat, the
/// first stays before all others: the state is with the survivors, and moves to the newcomers in this change.
[[nodiscard]] Change seat(const Seats& seats, std::span<const Sitter> survivors, std::span<const Sitter> newcomers);

}  // namespace maypole::elastic
