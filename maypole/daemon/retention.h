// SPDX-License-Identifier: Apache-2.0
#pragma once

// How long jobs are kept that have ended, and their folders with what they wrote.

#include "maypole/daemon/executor.h"
#include "maypole/daemon/store.h"
#include "maypole/daemon/supervisor.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace maypole::daemon {

/// Neither: for ever.
struct KeepEnded {
  std::optional<double> seconds;    // after the end
  std::optional<std::size_t> jobs;  // only the youngest ends
};

/// `30d`, a number of jobs, or `forever`.
[[nodiscard]] absl::StatusOr<KeepEnded> parse_keep_ended(std::string_view text);

/// The jobs that have been kept long enough, in the order of their ends. Never the job with the highest number: so no number comes twice.
[[nodiscard]] std::vector<std::int64_t> expired(const std::map<std::int64_t, Job>& jobs, const KeepEnded& keep, double now_s);

/// Forgets expired jobs, a few at a time. The folder goes before the row, so that none is left without one.
class Retention {
 public:
  Retention(Store& store, Supervisor& supervisor, Executor& executor, const KeepEnded& keep)
      : store_(&store), supervisor_(&supervisor), executor_(&executor), keep_(keep) {}
  /// No effect before next_s(). Errors of the store; what could not be forgotten is tried again later.
  absl::Status run(double now_s);
  [[nodiscard]] double next_s() const { return next_s_; }

 private:
  Store* store_;
  Supervisor* supervisor_;
  Executor* executor_;
  KeepEnded keep_;
  double next_s_ = 0;
};

}  // namespace maypole::daemon
