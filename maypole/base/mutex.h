// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mutex, MutexLock and CondVar over the standard library, with clang's thread-safety annotations. Abseil's own Mutex is not
// used: the library is not instrumented, so ThreadSanitizer reports false races on everything it guards.

#include <absl/base/thread_annotations.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace maypole::base {

class ABSL_LOCKABLE Mutex {
 public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  bool try_lock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  /// Declares to the analysis that the caller holds this mutex, where it cannot see it (predicates of CondVar::wait).
  void assert_held() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Waits with the mutex held; wakes may be spurious, so callers loop on their condition.
class CondVar {
 public:
  void wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { condition_.wait(mutex); }

  /// Returns false when `deadline` passed.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return condition_.wait_until(mutex, deadline) == std::cv_status::no_timeout;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace maypole::base
