// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/retention.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/formats/number.h"

#include <algorithm>
#include <utility>

namespace maypole::daemon {

absl::StatusOr<KeepEnded> parse_keep_ended(std::string_view text) {
  KeepEnded keep;
  if (text == "forever") {
    return keep;
  }
  if (const std::optional<std::int64_t> jobs = formats::parse_integer(text)) {
    if (*jobs < 0) {
      return base::error(absl::StatusCode::kInvalidArgument, "'{}' is below 0", text);
    }
    keep.jobs = static_cast<std::size_t>(*jobs);
    return keep;
  }
  const absl::StatusOr<base::Nanoseconds> duration = base::parse_duration(text);
  if (!duration.ok()) {
    return base::error(absl::StatusCode::kInvalidArgument, "'{}' is neither a time such as 30d, nor a number of jobs, nor forever", text);
  }
  keep.seconds = base::to_seconds(*duration);
  return keep;
}

std::vector<std::int64_t> expired(const std::map<std::int64_t, Job>& jobs, const KeepEnded& keep, double now_s) {
  std::vector<std::pair<double, std::int64_t>> ended;
  for (const auto& [number, job] : jobs) {
    if (has_ended(job.row.state)) {
      ended.emplace_back(job.row.finished_s.value_or(job.row.submitted_s), number);
    }
  }
  std::ranges::sort(ended);
  const std::size_t over = keep.jobs && ended.size() > *keep.jobs ? ended.size() - *keep.jobs : 0;
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < ended.size(); ++i) {
    const bool old = keep.seconds && ended[i].first + *keep.seconds <= now_s;
    if ((old || i < over) && ended[i].second != jobs.rbegin()->first) {
      found.push_back(ended[i].second);
    }
  }
  return found;
}

absl::Status Retention::run(double now_s) {
  if (now_s < next_s_) {
    return absl::OkStatus();
  }
  constexpr double kEverySeconds = 30;
  constexpr double kSoon = 0.2;        // requests are answered in between
  constexpr std::size_t kAtOnce = 50;  // folders with their files
  std::vector<std::int64_t> numbers = expired(supervisor_->jobs(), keep_, now_s);
  next_s_ = now_s + (numbers.size() > kAtOnce ? kSoon : kEverySeconds);
  numbers.resize(std::min(numbers.size(), kAtOnce));
  if (numbers.empty()) {
    return absl::OkStatus();
  }
  for (const std::int64_t number : numbers) {
    executor_->forget(number);
  }
  absl::Status status = store_->remove_jobs(numbers);
  if (!status.ok()) {
    next_s_ = now_s + kEverySeconds;
    return status;
  }
  for (const std::int64_t number : numbers) {
    supervisor_->forget(number);
  }
  return absl::OkStatus();
}

}  // namespace maypole::daemon
