// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/mutex.h"

namespace maypole::pipeline {

/// Leaves the mutex for a while: copying, computing and calling the communicator happen without it.
class Unlocked {
 public:
  explicit Unlocked(base::Mutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS : mutex_(mutex) { mutex_.unlock(); }
  ~Unlocked() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  base::Mutex& mutex_;
};

}  // namespace maypole::pipeline
