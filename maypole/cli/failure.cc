// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/failure.h"

#include "maypole/base/check.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>
#include <string_view>

namespace maypole::cli {

namespace {

/// The rank that the last line with "rank K" and "lost" names.
std::optional<int> blamed_rank(std::string_view text) {
  std::optional<int> blamed;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const std::size_t at = line.find("rank ");
    if (at != std::string_view::npos && line.find("lost") != std::string_view::npos) {
      int rank = 0;
      const std::string_view digits = line.substr(at + 5);
      if (std::from_chars(digits.data(), digits.data() + digits.size(), rank).ec == std::errc()) {
        blamed = rank;
      }
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return blamed;
}

}  // namespace

const Failure& first_cause(const std::vector<Failure>& failures, const std::function<std::string(int)>& last_errors) {
  MAYPOLE_CHECK(!failures.empty());
  const Failure* cause = &failures.front();
  std::set<int> seen;
  while (cause->rank >= 0 && cause->status.signal == 0 && seen.insert(cause->rank).second) {
    const std::optional<int> blamed = blamed_rank(last_errors(cause->rank));
    const Failure* next = nullptr;
    for (const Failure& failure : failures) {
      if (blamed && failure.rank == *blamed) {
        next = &failure;
      }
    }
    if (next == nullptr) {
      break;
    }
    cause = next;
  }
  return *cause;
}

const Failure* silent_rank(const Failure& cause, const std::vector<Failure>& ended_by_us,
                           const std::function<std::string(int)>& last_errors) {
  const std::optional<int> blamed = cause.rank >= 0 ? blamed_rank(last_errors(cause.rank)) : std::nullopt;
  for (const Failure& failure : ended_by_us) {
    if (blamed && failure.rank == *blamed) {
      return &failure;
    }
  }
  return nullptr;
}

std::string describe(const Failure& failure) {
  if (failure.rank < 0) {
    return failure.reason;
  }
  const std::string who = fmt::format("rank {} on host {}", failure.rank, failure.host);
  if (!failure.reason.empty()) {
    return fmt::format("{} did not start: {}", who, failure.reason);
  }
  const std::string how =
      failure.status.signal != 0 ? net::describe(failure.status) : fmt::format("failed with exit code {}", failure.status.code);
  return fmt::format("{} {} after {:.1f} s", who, how, failure.seconds);
}

}  // namespace maypole::cli
