// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests on their way from the threads that serve connections to the one that owns everything, and answers back.

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"
#include "maypole/daemon/api.h"

#include <future>
#include <vector>

namespace maypole::daemon {

struct Letter {
  Request request;
  std::promise<Response> answer;
};

/// Thread-safe.
class Mailbox {
 public:
  Mailbox();
  /// Waits for the answer; 503 at once when the mailbox is closed.
  [[nodiscard]] Response ask(Request request);
  /// All that wait; does not block.
  [[nodiscard]] std::vector<Letter> take();
  /// Answers 503 to all that wait and all that come.
  void close();
  /// Readable while letters wait.
  [[nodiscard]] int fd() const { return bell_.get(); }

 private:
  base::Fd bell_;
  base::Mutex mutex_;
  std::vector<Letter> letters_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace maypole::daemon
