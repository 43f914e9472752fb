// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/timeline.h"

#include "maypole/base/status.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>

namespace maypole::pipeline {
namespace {

constexpr std::array<std::string_view, 5> kTrackNames = {"compute", "reduce-scatter", "all-gather", "update", "wait"};

double microseconds(base::Nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

std::string name_of(const Timeline::What& what) {
  std::string name = what.verb;
  if (what.group >= 0) {
    name += fmt::format(" group {}", what.group);
  }
  return what.model == 0 ? name : fmt::format("{} of model {}", name, what.model);
}

}  // namespace

Timeline::Timeline(bool enabled, int rank)
    : enabled_(enabled),
      rank_(rank),
      wall_offset_(std::chrono::duration_cast<base::Nanoseconds>(std::chrono::system_clock::now().time_since_epoch()) -
                   std::chrono::steady_clock::now().time_since_epoch()) {}

void Timeline::record(Track track, const What& what, base::TimePoint begin, base::TimePoint end) {
  if (!enabled_ || end <= begin) {
    return;
  }
  base::MutexLock lock(mutex_);
  if (events_.size() == kMaxEvents) {
    events_.pop_front();
  }
  events_.push_back({track, what, begin, end});
}

absl::Status Timeline::write(const std::string& path) const {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})", rank_);
  for (std::size_t k = 0; k < kTrackNames.size(); ++k) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","name":"thread_name","pid":{0},"tid":{1},"args":{{"name":"{2}"}}}})",
                   rank_, k, kTrackNames[k]);
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","name":"thread_sort_index","pid":{0},"tid":{1},"args":{{"sort_index":{1}}}}})",
                   rank_, k);
  }
  {
    base::MutexLock lock(mutex_);
    for (const Event& event : events_) {
      fmt::format_to(out,
                     ",\n"
                     R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                     name_of(event.what), rank_, static_cast<int>(event.track), microseconds(event.begin.time_since_epoch() + wall_offset_),
                     microseconds(event.end - event.begin));
    }
  }
  text += "\n]}\n";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"), std::fclose);
  if (file == nullptr) {
    return base::errno_error(errno, "cannot create the timeline {}", path);
  }
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0) {
    return base::errno_error(errno, "cannot write the timeline {}", path);
  }
  if (std::fclose(file.release()) != 0) {
    return base::errno_error(errno, "cannot write the timeline {}", path);
  }
  return absl::OkStatus();
}

}  // namespace maypole::pipeline
