// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/units.h"
#include "maypole/comm/communicator.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace maypole::comm {

/// Recognizes that every rank waits for another, so that nothing will ever move again: long before MAYPOLE_TIMEOUT, which must leave a
/// peer the time to compute. Pure: the caller brings the time and carries the tokens. Progress thread only.
///
/// A rank stands still when its caller has waited, without a limit of its own, for `limit`, and for as long nothing has moved in its lanes.
/// Rank 0 then sends a token around the ring. A rank that does not stand still drops it; the others note since when they stand, and pass it
/// on. When it is back, a second one follows, and passes only where nothing has changed since the first: at the moment between the two,
/// all ranks stood at once. It collects what each waits for.
class DeadlockWatch {
 public:
  struct Token {
    std::uint64_t number = 0;
    bool second = false;
    std::string waits;  // of the ranks that it has passed, in plain words; of the second only
  };

  DeadlockWatch(std::size_t rank, base::Nanoseconds limit) : rank_(rank), limit_(limit) {}

  /// Data moved, or an operation was started.
  void moved() { moved_ = true; }
  /// Called several times within the limit. Whether nothing has moved for so long that it is worth finding out what the caller waits for.
  [[nodiscard]] bool stands(base::TimePoint now);
  /// This process was stopped for a while: what happened before counts no more.
  void restart(base::TimePoint now) { still_since_ = now; }

  /// Rank 0, now and then while nothing moves: the token to send to the next rank, if any.
  [[nodiscard]] std::optional<Token> begin(const std::optional<Wait>& wait, base::TimePoint now);
  /// A token from the previous rank: what to send to the next one, if anything. On rank 0 the second one brings the verdict.
  [[nodiscard]] std::optional<Token> pass(Token token, const std::optional<Wait>& wait, base::TimePoint now);
  /// Rank 0: what every rank waits for, once it is certain; else empty.
  [[nodiscard]] const std::string& verdict() const { return verdict_; }

 private:
  using Place = std::pair<base::TimePoint, base::TimePoint>;  // since when nothing moves, since when the caller waits
  [[nodiscard]] std::optional<Place> place(const std::optional<Wait>& wait, base::TimePoint now);
  [[nodiscard]] std::string words(const Wait& wait) const;

  const std::size_t rank_;
  const base::Nanoseconds limit_;
  bool moved_ = true;
  base::TimePoint still_since_{};
  base::TimePoint next_token_{};
  std::uint64_t number_ = 0;     // of the token last seen
  std::optional<Place> marked_;  // where this rank stood when it saw it
  std::string verdict_;
};

}  // namespace maypole::comm
