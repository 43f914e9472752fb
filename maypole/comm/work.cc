// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/work.h"

#include "maypole/base/mutex.h"
#include "maypole/base/status.h"

#include <optional>
#include <vector>

namespace maypole::comm {

class Work::State {
 public:
  [[nodiscard]] bool done() {
    base::MutexLock lock(mutex_);
    return outcome_.has_value();
  }

  [[nodiscard]] absl::Status wait() {
    base::MutexLock lock(mutex_);
    while (!outcome_.has_value()) {
      changed_.wait(mutex_);
    }
    return *outcome_;
  }

  [[nodiscard]] absl::Status wait_for(base::Nanoseconds limit) {
    const base::TimePoint deadline = std::chrono::steady_clock::now() + limit;
    base::MutexLock lock(mutex_);
    while (!outcome_.has_value()) {
      if (!changed_.wait_until(mutex_, deadline) && !outcome_.has_value()) {
        return base::error(absl::StatusCode::kDeadlineExceeded, "the operation did not end within {:.3f} s", base::to_seconds(limit));
      }
    }
    return *outcome_;
  }

  void on_done(std::function<void(const absl::Status&)> callback) {
    {
      base::MutexLock lock(mutex_);
      if (!outcome_.has_value()) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback(*outcome_);  // set once, never changed afterwards
  }

  void finish(absl::Status outcome) {
    std::vector<std::function<void(const absl::Status&)>> callbacks;
    {
      base::MutexLock lock(mutex_);
      if (outcome_.has_value()) {
        return;
      }
      outcome_ = std::move(outcome);
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    for (const auto& callback : callbacks) {
      callback(*outcome_);
    }
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::optional<absl::Status> outcome_;  // guarded by mutex_ until set
  std::vector<std::function<void(const absl::Status&)>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

Work Work::finished(absl::Status outcome) {
  Work work = pending();
  work.finish(std::move(outcome));
  return work;
}
Work Work::pending() { return Work(std::make_shared<State>()); }
bool Work::done() const { return state_->done(); }
absl::Status Work::wait() const { return state_->wait(); }
absl::Status Work::wait_for(base::Nanoseconds limit) const { return state_->wait_for(limit); }
void Work::on_done(std::function<void(const absl::Status&)> callback) const { state_->on_done(std::move(callback)); }
void Work::finish(absl::Status outcome) const { state_->finish(std::move(outcome)); }

}  // namespace maypole::comm
