// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/job_row.h"

namespace maypole::daemon {

std::string_view name_of(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "queued";
    case JobState::kStarting:
      return "starting";
    case JobState::kRunning:
      return "running";
    case JobState::kSuspended:
      return "suspended";
    case JobState::kFinished:
      return "finished";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
  }
  return "";
}

std::optional<JobState> job_state(std::string_view name) {
  for (int i = 0; i < kNumJobStates; ++i) {
    if (name_of(static_cast<JobState>(i)) == name) {
      return static_cast<JobState>(i);
    }
  }
  return std::nullopt;
}

bool has_ended(JobState state) { return state == JobState::kFinished || state == JobState::kFailed || state == JobState::kCancelled; }
bool holds_capacity(JobState state) { return state == JobState::kStarting || state == JobState::kRunning; }

}  // namespace maypole::daemon
