// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/deadlock_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace maypole::comm {

namespace {

// Of one rank, in the message: an error travels in few kilobytes.
constexpr std::size_t kMaxWords = 400;

}  // namespace

bool DeadlockWatch::stands(base::TimePoint now) {
  if (std::exchange(moved_, false)) {
    still_since_ = now;
  }
  return now - still_since_ >= limit_;
}

std::optional<DeadlockWatch::Place> DeadlockWatch::place(const std::optional<Wait>& wait, base::TimePoint now) {
  if (!stands(now) || !wait || now - wait->since < limit_) {
    return std::nullopt;
  }
  return Place{still_since_, wait->since};
}

std::string DeadlockWatch::words(const Wait& wait) const {
  return fmt::format("rank {} waits for {}", rank_, wait.what).substr(0, kMaxWords);
}

std::optional<DeadlockWatch::Token> DeadlockWatch::begin(const std::optional<Wait>& wait, base::TimePoint now) {
  const std::optional<Place> here = place(wait, now);
  if (rank_ != 0 || !here || now < next_token_) {
    return std::nullopt;
  }
  next_token_ = now + limit_ / 4;  // the last one was dropped somewhere
  marked_ = here;
  return Token{++number_, false, ""};
}

std::optional<DeadlockWatch::Token> DeadlockWatch::pass(Token token, const std::optional<Wait>& wait, base::TimePoint now) {
  const std::optional<Place> here = place(wait, now);
  if (!here) {
    return std::nullopt;
  }
  if (rank_ == 0) {
    if (token.number != number_ || here != marked_) {
      return std::nullopt;
    }
    if (!token.second) {
      return Token{number_, true, words(*wait)};
    }
    verdict_ = std::move(token.waits);
    return std::nullopt;
  }
  if (!token.second) {
    number_ = token.number;
    marked_ = here;
    return token;
  }
  if (token.number != number_ || here != marked_) {
    return std::nullopt;
  }
  token.waits += "; " + words(*wait);
  return token;
}

}  // namespace maypole::comm
