// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace maypole::daemon {

namespace {

Response closing() { return error_response(503, "the daemon is ending"); }

}  // namespace

Mailbox::Mailbox() : bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Response Mailbox::ask(Request request) {
  std::future<Response> answer;
  {
    const base::MutexLock lock(mutex_);
    if (closed_) {
      return closing();
    }
    letters_.push_back({std::move(request), {}});
    answer = letters_.back().answer.get_future();
  }
  const std::uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);
  return answer.get();
}

std::vector<Letter> Mailbox::take() {
  std::uint64_t rings = 0;
  (void)!::read(bell_.get(), &rings, sizeof rings);
  const base::MutexLock lock(mutex_);
  return std::exchange(letters_, {});
}

void Mailbox::close() {
  std::vector<Letter> left;
  {
    const base::MutexLock lock(mutex_);
    closed_ = true;
    left = std::exchange(letters_, {});
  }
  for (Letter& letter : left) {
    letter.answer.set_value(closing());
  }
}

}  // namespace maypole::daemon
