// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/top_frame.h"

#include "maypole/cli/terminal_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <map>

namespace maypole::cli {

namespace {

constexpr std::size_t kBar = 10;
constexpr std::size_t kLongestName = 20;

std::string clock_of(double now_s) {
  const auto seconds = static_cast<std::time_t>(now_s);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

/// `[######....]`: of the resource that is taken most.
std::string bar_of(const std::vector<AmountView>& amounts) {
  double most = 0;
  for (const AmountView& amount : amounts) {
    most = std::max(most, amount.capacity > 0 ? amount.held / amount.capacity : 0);
  }
  const double tenths = std::clamp(most, 0.0, 1.0) * static_cast<double>(kBar);
  const std::size_t full = most > 0 ? std::max<std::size_t>(1, static_cast<std::size_t>(tenths)) : 0;  // a little is not nothing
  return fmt::format("[{}{}]", std::string(full, '#'), std::string(kBar - full, '.'));
}

std::string amounts_text(const std::vector<AmountView>& amounts) {
  std::vector<std::string> texts;
  for (const AmountView& amount : amounts) {
    texts.push_back(amount_text(amount));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<AmountView> sum_of(const std::vector<ServerView>& servers) {
  std::vector<AmountView> sums;
  for (const ServerView& server : servers) {
    for (const AmountView& amount : server.amounts) {
      const auto found = std::ranges::find(sums, amount.resource, &AmountView::resource);
      AmountView& sum = found == sums.end() ? sums.emplace_back(AmountView{amount.resource, 0, 0}) : *found;
      sum.held += amount.held;
      sum.capacity += amount.capacity;
    }
  }
  return sums;
}

std::vector<std::string> server_lines(const std::vector<ServerView>& servers, std::size_t room) {
  std::vector<const ServerView*> shown;  // closed ones first, then busy ones, as they are named
  for (const ServerView& server : servers) {
    shown.push_back(&server);
  }
  if (servers.size() > room) {
    std::ranges::stable_sort(shown, [](const ServerView* a, const ServerView* b) {
      return std::pair(a->closed.empty(), a->jobs.empty()) < std::pair(b->closed.empty(), b->jobs.empty());
    });
    shown.resize(room - 1);
  }
  std::size_t widest = 0;
  for (const ServerView* server : shown) {
    widest = std::max(widest, columns_of(server->id));
  }
  std::vector<std::string> lines;
  for (const ServerView* server : shown) {
    lines.push_back(fmt::format("{}{} {} {}{}{}{}{}", server->id, std::string(widest - columns_of(server->id), ' '),
                                bar_of(server->amounts), amounts_text(server->amounts), server->jobs.empty() ? "" : " by ",
                                fmt::join(server->jobs, ", "), server->closed.empty() ? "" : "; ", server->closed));
  }
  if (servers.size() > shown.size()) {
    lines.push_back(fmt::format("and {} more servers", servers.size() - shown.size()));
  }
  return lines;
}

std::string count_of(const TopView& view) {
  std::map<std::string, std::size_t> states;
  for (const JobView& job : view.running.jobs) {
    ++states[job.state];
  }
  std::vector<std::string> parts;
  for (const auto& [state, count] : states) {
    parts.push_back(fmt::format("{} {}", count, state));
  }
  if (view.running.left_out > 0) {
    parts.push_back(fmt::format("{} more of them", view.running.left_out));
  }
  parts.push_back(fmt::format("{} queued", static_cast<std::int64_t>(view.waiting.jobs.size()) + view.waiting.left_out));
  return fmt::format("jobs: {}", fmt::join(parts, ", "));
}

/// The jobs for so many lines, one of them for the names of columns.
std::vector<std::string> job_lines(const TopView& view, std::size_t room) {
  std::vector<JobView> jobs = view.running.jobs;
  jobs.insert(jobs.end(), view.waiting.jobs.begin(), view.waiting.jobs.end());
  const std::size_t all = jobs.size() + static_cast<std::size_t>(view.running.left_out + view.waiting.left_out);
  if (jobs.empty() || room < 2) {
    return {};
  }
  if (all + 1 > room) {
    jobs.resize(std::min(jobs.size(), room - 2));
  }
  for (JobView& job : jobs) {
    job.name = cut_to(printable(job.name), kLongestName);
    job.owner = cut_to(printable(job.owner), kLongestName);
  }
  std::vector<std::string> lines;
  const std::string table = queue_table(jobs, view.now_s);
  for (std::size_t begin = 0; begin < table.size();) {
    const std::size_t end = table.find('\n', begin);
    lines.push_back(table.substr(begin, end - begin));
    begin = end + 1;
  }
  if (all > jobs.size()) {
    lines.push_back(fmt::format("and {} more", all - jobs.size()));
  }
  return lines;
}

}  // namespace

std::vector<std::string> top_frame(const TopView& view, const FrameSize& size) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("maypole {}  policy {}  {}", view.address, view.cluster.policy, clock_of(view.now_s)));
  if (!view.trouble.empty()) {
    lines.push_back(view.trouble);
  }
  if (!view.cluster.refused.empty()) {
    lines.push_back("a decision was refused: " + view.cluster.refused);
  }
  const std::vector<AmountView> sum = sum_of(view.cluster.servers);
  lines.push_back(fmt::format("{} {}: {} taken", view.cluster.servers.size(), view.cluster.servers.size() == 1 ? "server" : "servers",
                              amounts_text(sum)));
  constexpr std::size_t kLeastServers = 2;
  const std::size_t room = size.lines > lines.size() ? size.lines - lines.size() : 0;
  const std::size_t wanted = view.running.jobs.size() + view.waiting.jobs.size() + 3;  // a blank line, the count, the columns' names
  std::size_t server_room = std::max(kLeastServers, std::max(room / 3, room > wanted ? room - wanted : 0));
  for (const std::string& line : server_lines(view.cluster.servers, server_room)) {
    lines.push_back("  " + line);
  }
  lines.emplace_back();
  lines.push_back(count_of(view));
  for (std::string& line : job_lines(view, size.lines > lines.size() ? size.lines - lines.size() : 0)) {
    lines.push_back("  " + std::move(line));
  }
  lines.resize(std::min(lines.size(), size.lines));
  for (std::string& line : lines) {
    line = cut_to(printable(line), size.columns);
  }
  return lines;
}

}  // namespace maypole::cli
