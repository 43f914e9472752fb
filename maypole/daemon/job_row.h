// SPDX-License-Identifier: Apache-2.0
#pragma once

// A job as the store keeps it, and the states of formats.md.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace maypole::daemon {

enum class JobState { kQueued, kStarting, kRunning, kSuspended, kFinished, kFailed, kCancelled };
inline constexpr int kNumJobStates = 7;

[[nodiscard]] std::string_view name_of(JobState state);
/// The state of that name, or none.
[[nodiscard]] std::optional<JobState> job_state(std::string_view name);
/// Finished, failed or cancelled: nothing happens to it any more.
[[nodiscard]] bool has_ended(JobState state);
/// Starting or running: workers of its epoch may exist.
[[nodiscard]] bool holds_capacity(JobState state);

/// Times are seconds since 1970.
struct JobRow {
  std::int64_t number = 0;  // its id is this number in decimal
  std::string owner;        // the token's name
  std::string description;  // job.yaml as submitted
  JobState state = JobState::kQueued;
  std::string reason;     // a sentence where there is more to say than the state
  int epoch = 0;          // of the incarnation that was started last; never used twice
  std::string ring;       // of that epoch: a line of decision_line.h; empty where it has none
  std::string devices;    // accelerators of that epoch's ranks, "0,1;2,3"; empty where it has none; after a '|' those of `leaving`
  std::string leaving;    // where its ring is being changed: a line of the ring that it had before, whose places it may still have
  int order = 0;          // to the head of this epoch, of the last change of its ring
  int resizes = 0;        // changes of its ring that came into effect, in all epochs
  int failures = 0;       // counted against its retries
  bool stopping = false;  // it was cancelled and its workers have not all ended
  double submitted_s = 0;
  std::optional<double> started_s;  // first
  std::optional<double> finished_s;
  std::optional<int> exit_code;

  [[nodiscard]] std::string id() const { return std::to_string(number); }
  bool operator==(const JobRow&) const = default;
};

}  // namespace maypole::daemon
