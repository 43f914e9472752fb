// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/seating.h"

#include <algorithm>
#include <optional>

namespace maypole::elastic {

namespace {

/// [position]: who sits there.
std::vector<std::optional<WorkerId>> take_seats(const Seats& seats, std::span<const Sitter> sitters) {
  std::vector<std::optional<WorkerId>> taken(seats.size());
  for (const Sitter& sitter : sitters) {
    for (std::size_t i = 0; i < seats.size(); ++i) {
      if (!taken[i] && seats[i] == sitter.host) {
        taken[i] = sitter.worker;
        break;
      }
    }
  }
  return taken;
}

}  // namespace

EdgeRates rates_of(const EdgeRates& rates, std::size_t size) {
  if (rates.size() == size) {
    return rates;
  }
  base::Bandwidth least;
  for (const base::Bandwidth rate : rates) {
    least = rate.limited() && (!least.limited() || rate < least) ? rate : least;
  }
  return EdgeRates(size, least);
}

Seats vacant(const Seats& seats, std::span<const Sitter> sitters) {
  const auto taken = take_seats(seats, sitters);
  Seats left;
  for (std::size_t i = 0; i < seats.size(); ++i) {
    if (!taken[i]) {
      left.push_back(seats[i]);
    }
  }
  return left;
}

std::vector<WorkerId> surplus(const Seats& seats, std::span<const Sitter> sitters) {
  const auto taken = take_seats(seats, sitters);
  std::vector<WorkerId> left;
  for (const Sitter& sitter : sitters) {
    if (std::ranges::find(taken, std::optional(sitter.worker)) == taken.end()) {
      left.push_back(sitter.worker);
    }
  }
  return left;
}

Change seat(const Seats& seats, std::span<const Sitter> survivors, std::span<const Sitter> newcomers) {
  std::vector<Sitter> all(survivors.begin(), survivors.end());
  all.insert(all.end(), newcomers.begin(), newcomers.end());
  Change change;
  for (const std::optional<WorkerId>& worker : take_seats(seats, all)) {
    if (worker) {
      change.members.push_back(*worker);
    }
  }
  const auto stays = [&change](const Sitter& survivor) {
    return std::ranges::find(change.members, survivor.worker) != change.members.end();
  };
  if (!survivors.empty() && std::ranges::none_of(survivors, stays)) {
    change.members.insert(change.members.begin(), survivors.front().worker);
  }
  for (const Sitter& survivor : survivors) {
    if (!stays(survivor)) {
      change.leavers.push_back(survivor.worker);
    }
  }
  return change;
}

}  // namespace maypole::elastic
