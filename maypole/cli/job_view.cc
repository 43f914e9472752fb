// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_view.h"

#include "maypole/base/status.h"
#include "maypole/cli/terminal_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace maypole::cli {

namespace {

constexpr std::string_view kAnswer = "the daemon's answer";

// Where the fields of a job go. A later daemon may send more.
const std::map<std::string_view, std::string JobView::*>& texts() {
  static const std::map<std::string_view, std::string JobView::*> known = {
      {"id", &JobView::id}, {"name", &JobView::name}, {"owner", &JobView::owner}, {"state", &JobView::state}, {"reason", &JobView::reason}};
  return known;
}
const std::map<std::string_view, int JobView::*>& integers() {
  static const std::map<std::string_view, int JobView::*> known = {{"workers", &JobView::workers},
                                                                   {"min_workers", &JobView::min_workers},
                                                                   {"max_workers", &JobView::max_workers},
                                                                   {"retries", &JobView::retries}};
  return known;
}

/// Fills jobs from the parser's events, without a tree between: a queue of ten thousand is shown in a moment.
class JobReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `depth`: of maps that are jobs, 1 for the outermost.
  explicit JobReader(std::size_t depth) : depth_(depth) {}
  [[nodiscard]] JobList take() { return std::move(list_); }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return number(value); }
  bool string(string_t& value) override {
    if (open_ == depth_ + 1 && name_ == "ring") {
      list_.jobs.back().ring.push_back(std::move(value));
    } else if (const auto found = texts().find(name_); open_ == depth_ && found != texts().end()) {
      list_.jobs.back().*found->second = std::move(value);
    }
    return true;
  }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override {
    if (++open_ == depth_) {
      list_.jobs.emplace_back();
    }
    return true;
  }
  bool key(string_t& name) override {
    if (open_ <= depth_) {
      name_.swap(name);
    }
    return true;
  }
  bool end_object() override { return open_-- > 0; }
  bool start_array(std::size_t /*size*/) override { return ++open_ > 0; }
  bool end_array() override { return open_-- > 0; }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const nlohmann::detail::exception& /*exception*/) override {
    return false;
  }

 private:
  bool number(double value) {
    if (open_ == 1 && name_ == "left_out") {
      list_.left_out = static_cast<std::int64_t>(value);
    }
    if (open_ != depth_) {
      return true;
    }
    JobView& job = list_.jobs.back();
    if (const auto found = integers().find(name_); found != integers().end()) {
      job.*found->second = static_cast<int>(value);
    } else if (name_ == "submitted_s") {
      job.submitted_s = value;
    } else if (name_ == "started_s") {
      job.started_s = value;
    } else if (name_ == "finished_s") {
      job.finished_s = value;
    } else if (name_ == "exit_code") {
      job.exit_code = static_cast<int>(value);
    }
    return true;
  }

  std::size_t depth_;
  std::size_t open_ = 0;  // maps and lists
  std::string name_;      // of the field that is read, of a job or around it
  JobList list_;
};

absl::StatusOr<JobList> read_jobs(std::string_view json, std::size_t depth) {
  JobReader reader(depth);
  if (!nlohmann::json::sax_parse(json, &reader)) {
    return base::error(absl::StatusCode::kInternal, "{}: is no JSON", kAnswer);
  }
  JobList list = reader.take();
  const bool whole = std::ranges::none_of(list.jobs, [](const JobView& job) { return job.id.empty() || job.state.empty(); });
  if (!whole) {
    return base::error(absl::StatusCode::kInternal, "{}: a job has no id or no state", kAnswer);
  }
  return list;
}

std::string span_of(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds));
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  if (whole < kMinute) {
    return fmt::format("{}s", whole);
  }
  return whole < kHour ? fmt::format("{}:{:02}", whole / kMinute, whole % kMinute)
                       : fmt::format("{}:{:02}:{:02}", whole / kHour, whole / kMinute % kMinute, whole % kMinute);
}

std::string range_of(const JobView& job) {
  return job.min_workers == job.max_workers ? std::to_string(job.min_workers) : fmt::format("{}:{}", job.min_workers, job.max_workers);
}

/// `s0 x4, s1 x2`: where its workers are, in the order of its ring.
std::string servers_of(const JobView& job) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& server : job.ring) {
    const auto found = std::ranges::find(counts, server, &std::pair<std::string, int>::first);
    (found == counts.end() ? counts.emplace_back(server, 0) : *found).second += 1;
  }
  constexpr std::size_t kMost = 4;
  std::vector<std::string> texts;
  for (const auto& [server, count] : counts) {
    texts.push_back(texts.size() == kMost ? fmt::format("and {} more", counts.size() - kMost)
                    : count > 1           ? fmt::format("{} x{}", server, count)
                                          : server);
    if (texts.size() > kMost) {
      break;
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

absl::StatusOr<JobView> parse_job(std::string_view json) {
  MAYPOLE_ASSIGN_OR_RETURN(JobList list, read_jobs(json, 1));
  if (list.jobs.size() != 1) {
    return base::error(absl::StatusCode::kInternal, "{}: is no job", kAnswer);
  }
  return std::move(list.jobs.front());
}

absl::StatusOr<JobList> parse_jobs(std::string_view json) {
  constexpr std::size_t kInListInMap = 3;
  return read_jobs(json, kInListInMap);
}

std::string queue_table(const std::vector<JobView>& jobs, double now_s) {
  using Row = std::array<std::string, 7>;
  std::vector<Row> rows = {{"id", "name", "owner", "state", "workers", "time", "where, or why"}};
  for (const JobView& job : jobs) {
    const double since = job.started_s.value_or(job.submitted_s);
    const std::string workers = job.workers > 0 ? fmt::format("{} of {}", job.workers, range_of(job)) : range_of(job);
    rows.push_back({job.id, printable(job.name), printable(job.owner), job.state, workers, span_of(job.finished_s.value_or(now_s) - since),
                    job.reason.empty() ? servers_of(job) : printable(job.reason)});
  }
  std::array<std::size_t, 7> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      text.append(widths[i] - columns_of(row[i]) + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string job_text(const JobView& job, double now_s) {
  std::string text = fmt::format("job {}{}\n", job.id, job.name.empty() ? "" : " (" + printable(job.name) + ")");
  const auto add = [&](std::string_view name, const std::string& value) { text += fmt::format("  {:<10} {}\n", name, printable(value)); };
  add("state", job.reason.empty() ? job.state : fmt::format("{}: {}", job.state, job.reason));
  add("owner", job.owner);
  add("workers", job.workers > 0 ? fmt::format("{} of {}", job.workers, range_of(job)) : fmt::format("none of {}", range_of(job)));
  if (!job.ring.empty()) {
    add("ring", fmt::format("{}", fmt::join(job.ring, " -> ")));
  }
  add("submitted", span_of(now_s - job.submitted_s) + " ago");
  if (job.started_s) {
    add("started", fmt::format("{} after it was submitted", span_of(*job.started_s - job.submitted_s)));
  }
  if (job.finished_s) {
    add("ended", fmt::format("{} after it was submitted", span_of(*job.finished_s - job.submitted_s)));
  }
  if (job.exit_code) {
    add("exit code", std::to_string(*job.exit_code));
  }
  if (job.retries > 0) {
    add("retries", std::to_string(job.retries));
  }
  return text;
}

}  // namespace maypole::cli
