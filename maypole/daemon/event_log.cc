// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/event_log.h"

#include "maypole/net/hmac.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <charconv>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr std::size_t kLifeBytes = 4;

}  // namespace

EventLog::EventLog(const EventLimits& limits)
    : limits_(limits), life_(net::random_hex(kLifeBytes)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void EventLog::append(std::string_view type, std::string_view data) {
  const base::MutexLock lock(mutex_);
  events_.push_back(fmt::format("id: {}-{}\nevent: {}\ndata: {}\n\n", life_, next_, type, data));
  ++next_;
  bytes_ += events_.back().size();
  while (events_.size() > limits_.count || bytes_ > limits_.bytes) {
    bytes_ -= events_.front().size();
    events_.pop_front();
  }
}

void EventLog::publish() {
  const std::uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);
}

void EventLog::silence() {
  std::uint64_t rings = 0;
  (void)!::read(bell_.get(), &rings, sizeof rings);
}

void EventLog::cut_off(const std::string& reader) {
  {
    const base::MutexLock lock(mutex_);
    cut_off_.push_back(reader);
  }
  publish();
}

std::vector<std::string> EventLog::take_cut_off() {
  const base::MutexLock lock(mutex_);
  return std::exchange(cut_off_, {});
}

EventLog::Start EventLog::start(std::string_view last_event_id) const {
  constexpr std::string_view kRetry = "retry: 1000\n\n";
  const base::MutexLock lock(mutex_);
  const std::string prefix = life_ + "-";
  if (last_event_id.starts_with(prefix)) {
    const std::string_view digits = last_event_id.substr(prefix.size());
    std::uint64_t seen = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seen);
    if (error == std::errc() && end == digits.data() + digits.size() && seen + 1 >= first() && seen < next_) {
      return {seen + 1, std::string(kRetry)};
    }
  }
  return {next_, fmt::format("{}id: {}-{}\nevent: start\ndata: {{}}\n\n", kRetry, life_, next_ - 1)};
}

std::optional<EventLog::Part> EventLog::read(std::uint64_t next, std::size_t most_bytes) const {
  const base::MutexLock lock(mutex_);
  if (next < first()) {
    return std::nullopt;
  }
  Part part{"", next};
  while (part.next < next_ && part.text.size() < most_bytes) {
    part.text += events_[part.next - first()];
    ++part.next;
  }
  return part;
}

}  // namespace maypole::daemon
