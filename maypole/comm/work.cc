// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/work.h"

#include "maypole/base/check.h"
#include "maypole/base/mutex.h"
#include "maypole/base/status.h"

#include <utility>
#include <vector>

namespace maypole::comm {

class Work::State {
 public:
  Work::Help help;  // fixed before the first wait
  base::Mutex mutex;
  base::CondVar ended;
  bool done ABSL_GUARDED_BY(mutex) = false;
  absl::Status outcome ABSL_GUARDED_BY(mutex);
  std::vector<std::function<void(const absl::Status&)>> callbacks ABSL_GUARDED_BY(mutex);
  int waiters ABSL_GUARDED_BY(mutex) = 0;  // without a limit
  base::TimePoint waited_since ABSL_GUARDED_BY(mutex);

  void begin_wait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (waiters++ == 0) {
      waited_since = std::chrono::steady_clock::now();
    }
  }
};

Work::Waiting::Waiting(const Work& work) : state_(work.state_) {
  const base::MutexLock lock(state_->mutex);
  state_->begin_wait();
}

Work::Waiting::~Waiting() {
  const base::MutexLock lock(state_->mutex);
  --state_->waiters;
}

std::optional<base::TimePoint> Work::waited_since() const {
  const base::MutexLock lock(state_->mutex);
  return state_->waiters > 0 ? std::optional(state_->waited_since) : std::nullopt;
}

Work Work::pending(Help help) {
  auto state = std::make_shared<State>();
  state->help = std::move(help);
  return Work(std::move(state));
}

Work Work::finished(absl::Status outcome) {
  Work work = pending();
  work.finish(std::move(outcome));
  return work;
}

bool Work::done() const {
  const base::MutexLock lock(state_->mutex);
  return state_->done;
}

absl::Status Work::wait() const {
  if (state_->help != nullptr && !done()) {
    state_->help(*this, base::TimePoint::max());
  }
  const base::MutexLock lock(state_->mutex);
  if (!state_->done) {
    state_->begin_wait();
    while (!state_->done) {
      state_->ended.wait(state_->mutex);
    }
    --state_->waiters;
  }
  return state_->outcome;
}

absl::Status Work::wait_for(base::Nanoseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  if (state_->help != nullptr && !done()) {
    state_->help(*this, deadline);
  }
  const base::MutexLock lock(state_->mutex);
  while (!state_->done) {
    if (!state_->ended.wait_until(state_->mutex, deadline) && !state_->done) {
      return base::error(absl::StatusCode::kDeadlineExceeded, "the operation did not end within {:.3f} s", base::to_seconds(limit));
    }
  }
  return state_->outcome;
}

void Work::on_done(std::function<void(const absl::Status&)> callback) const {
  absl::Status outcome;
  {
    const base::MutexLock lock(state_->mutex);
    if (!state_->done) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
    outcome = state_->outcome;
  }
  callback(outcome);
}

void Work::finish(absl::Status outcome) const {
  std::vector<std::function<void(const absl::Status&)>> callbacks;
  {
    const base::MutexLock lock(state_->mutex);
    MAYPOLE_CHECK(!state_->done);
    state_->done = true;
    state_->outcome = outcome;
    callbacks.swap(state_->callbacks);
    state_->ended.notify_all();
  }
  for (const auto& callback : callbacks) {
    callback(outcome);
  }
}

}  // namespace maypole::comm
