// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/units.h"

#include <absl/status/status.h>

#include <functional>
#include <memory>
#include <optional>

namespace maypole::comm {

/// A handle on an asynchronous operation. Copyable (copies share the outcome), usable from any thread.
class Work {
 public:
  class State;

  /// An operation that has already ended with `outcome`.
  static Work finished(absl::Status outcome);

  [[nodiscard]] bool done() const;
  /// Blocks until the operation ends; returns its outcome. The calling thread may move the operation itself meanwhile, and then run its
  /// callbacks. Never hangs: an operation whose peer is lost or late ends with an error.
  [[nodiscard]] absl::Status wait() const;
  /// As wait(), but gives up after `limit` with kDeadlineExceeded; the operation itself goes on.
  [[nodiscard]] absl::Status wait_for(base::Nanoseconds limit) const;
  /// Calls `callback` with the outcome, once: now, if it is done, else on the progress thread or one that waits. It must not block.
  void on_done(std::function<void(const absl::Status&)> callback) const;

  /// Says while it lives that a caller waits without a limit of its own, in slices or elsewhere than in wait().
  class Waiting;
  /// Since when a caller waits without a limit, if one does.
  [[nodiscard]] std::optional<base::TimePoint> waited_since() const;

  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// What a thread that begins to wait does before it sleeps: moves the operation on, until the deadline at the latest.
  using Help = std::function<void(const Work&, base::TimePoint deadline)>;
  /// For whoever carries the operation out: a pending handle, and how to end it (once).
  static Work pending(Help help = nullptr);
  void finish(absl::Status outcome) const;

 private:
  std::shared_ptr<State> state_;  // shared: the caller's handles and the executor each may outlive the other
};

class Work::Waiting {
 public:
  explicit Waiting(const Work& work);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace maypole::comm
