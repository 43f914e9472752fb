// SPDX-License-Identifier: Apache-2.0
// What a calling thread does of the loop while the progress thread sleeps: start its own collective at once, and move it while it waits.
// Only where nothing else is in motion and nothing is paced, so that no callback but those of this collective can run here.

#include "maypole/comm/progress.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace maypole::comm {

namespace {

using Clock = std::chrono::steady_clock;

// What takes longer gains nothing from its caller, and is left to the progress thread.
constexpr auto kHelp = std::chrono::milliseconds(2);

}  // namespace

bool Progress::caller_may_turn() {
  if (ports_.empty() || failed_ || stopping_ || departed_ || suspect_ || pacer_.limited() || wanted_.load() ||
      !lanes_[index(Lane::kReduceScatter)]->empty() || !lanes_[index(Lane::kAllGather)]->empty()) {
    return false;
  }
  const base::MutexLock lock(mutex_);
  return posted_.empty();
}

bool Progress::turn_user() {
  bool progressed = false;
  for (Port& port : ports_) {
    port.readable[index(Lane::kUser)] = true;  // asking the socket is as cheap as asking whether to
    progressed |= receive_on_lane(port, Lane::kUser);
  }
  if (!failed_) {
    progressed |= send_exchange();
    progressed |= send_on_lane(Lane::kUser);
  }
  received_bytes_.store(lanes_[0]->received_bytes() + lanes_[1]->received_bytes() + lanes_[2]->received_bytes(), std::memory_order_relaxed);
  if (progressed) {
    deadlock_.moved();
    finish_complete();
  }
  return progressed;
}

void Progress::let_sleep() {
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    update_interest(p);
  }
  watch_user(!lanes_[index(Lane::kUser)]->empty());
  // What the progress thread computed before it slept holds still, unless one of these is news to it.
  if (failed_ || suspect_ || !watchers_.empty() || frames_waiting()) {
    wake();
  }
}

void Progress::start_user(std::function<void()> f) {
  if (turn_mutex_.try_lock()) {
    const bool now = caller_may_turn() && lanes_[index(Lane::kUser)]->empty();
    if (now) {
      f();
      turn_user();  // once: the caller may have other things to do than to move all of it
      let_sleep();
    }
    turn_mutex_.unlock();
    if (now) {
      return;
    }
  }
  post(std::move(f));
}

Work::Help Progress::helper() const {
  return [life = life_](const Work& work, base::TimePoint deadline) {
    Progress* progress = nullptr;
    {
      const base::MutexLock lock(life->mutex);
      progress = life->progress;
      life->helpers += progress != nullptr ? 1 : 0;
    }
    if (progress != nullptr) {
      progress->help(work, deadline);
      const base::MutexLock lock(life->mutex);
      --life->helpers;
      life->helped.notify_all();
    }
  };
}

void Progress::help(const Work& work, base::TimePoint deadline) {
  if (!turn_mutex_.try_lock()) {
    return;  // the progress thread is at it
  }
  if (caller_may_turn() && lanes_[index(Lane::kUser)]->size() == 1) {
    watch_user(false);
    for (Port& port : ports_) {
      if (port.shm != nullptr) {
        port.shm->own().sleeping.store(0);
      }
    }
    last_move_ = Clock::now();
    const base::TimePoint end = std::min(deadline, last_move_ + kHelp);
    while (!work.done() && !wanted_.load() && !failed_ && !suspect_) {
      const base::TimePoint now = Clock::now();
      const bool progressed = turn_user();
      if (progressed) {
        last_move_ = now;
      }
      if (now >= end || now - last_move_ > options_.spin) {
        break;
      }
      if (!progressed) {
        ::sched_yield();
      }
    }
    for (Port& port : ports_) {
      if (port.shm != nullptr) {
        port.shm->own().sleeping.store(1);
      }
    }
    let_sleep();
    if (!work.done()) {
      wake();
    }
  }
  turn_mutex_.unlock();
}

}  // namespace maypole::comm
