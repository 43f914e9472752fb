// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_report.h"

#include "maypole/base/check.h"
#include "maypole/base/fd.h"
#include "maypole/base/status.h"
#include "maypole/base/units.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace maypole::cli {

using nlohmann::json;
using pipeline::GroupReport;
using pipeline::Report;

namespace {

double median(std::vector<double> values) {
  MAYPOLE_CHECK(!values.empty());
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Figure {
  const char* name;
  double Report::* value;
};
constexpr std::array<Figure, 7> kFigures = {{{"iteration_s", &Report::iteration_s},
                                             {"forward_s", &Report::forward_s},
                                             {"backward_s", &Report::backward_s},
                                             {"reduce_scatter_s", &Report::reduce_scatter_s},
                                             {"all_gather_s", &Report::all_gather_s},
                                             {"exposed_s", &Report::exposed_s},
                                             {"bound_s", &Report::bound_s}}};

struct GroupFigure {
  const char* name;
  double GroupReport::* value;
};
constexpr std::array<GroupFigure, 3> kGroupFigures = {{{"reduce_scatter_s", &GroupReport::reduce_scatter_s},
                                                       {"all_gather_s", &GroupReport::all_gather_s},
                                                       {"exposed_s", &GroupReport::exposed_s}}};

std::string seconds(double value) { return base::format_seconds(value); }

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// What is written before it takes the name of `path`: another file beside it, but a pipe or /dev/null is written itself.
std::string written_first(const std::string& path) {
  struct stat existing{};
  const bool special = ::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode);
  return special ? path : fmt::format("{}.{}.part", path, ::getpid());
}

/// Earliest "ts" of the events that have one.
double first_time(const json& events) {
  double first = std::numeric_limits<double>::infinity();
  for (const json& event : events) {
    if (event.contains("ts")) {
      first = std::min(first, event["ts"].get<double>());
    }
  }
  return first;
}

absl::Status write_all(const base::Fd& fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return base::errno_error(errno, "write {}", path);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Report> parse_report(std::string_view text) {
  try {
    const json object = json::parse(text);
    Report report;
    for (const Figure& figure : kFigures) {
      report.*figure.value = object.at(figure.name).get<double>();
    }
    report.iterations = object.value("iterations", std::size_t{0});
    report.communication_s = object.value("communication_s", 0.0);
    report.schedule = object.at("schedule").get<std::string>();
    report.update = object.at("update").get<std::string>();
    report.world_size = object.at("world_size").get<int>();
    report.fusion = object.value("fusion", std::string());
    for (const json& group : object.at("groups")) {
      GroupReport& added = report.groups.emplace_back();
      added.bytes = group.at("bytes").get<std::size_t>();
      for (const GroupFigure& figure : kGroupFigures) {
        added.*figure.value = group.at(figure.name).get<double>();
      }
    }
    return report;
  } catch (const json::exception& exception) {
    return base::error(absl::StatusCode::kInvalidArgument, "{}", exception.what());
  }
}

Report merge_reports(const std::map<int, Report>& by_rank) {
  MAYPOLE_CHECK(!by_rank.empty());
  Report merged = by_rank.begin()->second;
  const auto over_ranks = [&](auto value_of) {
    std::vector<double> values;
    for (const auto& [rank, report] : by_rank) {
      values.push_back(value_of(report));
    }
    return median(std::move(values));
  };
  for (const Figure& figure : kFigures) {
    merged.*figure.value = over_ranks([&](const Report& report) { return report.*figure.value; });
  }
  // The slowest edge of the ring decides; the ranks of faster ones cannot see what it costs.
  for (const auto& [rank, report] : by_rank) {
    merged.communication_s = std::max(merged.communication_s, report.communication_s);
  }
  merged.bound_s = std::max(merged.bound_s, merged.communication_s);
  const bool same_groups =
      std::ranges::all_of(by_rank, [&](const auto& entry) { return entry.second.groups.size() == merged.groups.size(); });
  for (std::size_t i = 0; same_groups && i < merged.groups.size(); ++i) {
    for (const GroupFigure& figure : kGroupFigures) {
      merged.groups[i].*figure.value = over_ranks([&](const Report& report) { return report.groups[i].*figure.value; });
    }
  }
  return merged;
}

std::string report_json(const Report& report, std::string_view machine, std::string_view commit) {
  nlohmann::ordered_json object;
  for (const Figure& figure : kFigures) {
    object[figure.name] = report.*figure.value;
  }
  object["schedule"] = report.schedule;
  object["update"] = report.update;
  object["world_size"] = report.world_size;
  if (!report.fusion.empty()) {
    object["fusion"] = report.fusion;
  }
  object["machine"] = machine;
  object["commit"] = commit;
  object["groups"] = nlohmann::ordered_json::array();
  for (const GroupReport& group : report.groups) {
    nlohmann::ordered_json& added = object["groups"].emplace_back();
    added["bytes"] = group.bytes;
    for (const GroupFigure& figure : kGroupFigures) {
      added[figure.name] = group.*figure.value;
    }
  }
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string report_table(const Report& report) {
  std::string out;
  const auto line = [&out](const std::string& text) { out += "maypole: " + text + "\n"; };
  const std::string measured = report.iterations > 0 ? fmt::format(", median of {}", base::counted(report.iterations, "iteration")) : "";
  line(fmt::format("what communication cost: {}, schedule {}, {} update{}",
                   base::counted(static_cast<std::uint64_t>(report.world_size), "worker"), report.schedule, report.update, measured));
  line(fmt::format("  {:<22} {:>10}", "iteration", seconds(report.iteration_s)));
  line(fmt::format("  {:<22} {:>10}", "forward F", seconds(report.forward_s)));
  line(fmt::format("  {:<22} {:>10}", "backward B", seconds(report.backward_s)));
  line(fmt::format("  {:<22} {:>10}", "reduce-scatter RS", seconds(report.reduce_scatter_s)));
  line(fmt::format("  {:<22} {:>10}", "all-gather AG", seconds(report.all_gather_s)));
  line(fmt::format("  {:<22} {:>10}", "exposed communication", seconds(report.exposed_s)));
  const double share = report.iteration_s > 0 ? report.bound_s / report.iteration_s * 100 : 0;
  line(fmt::format("  {:<22} {:>10}   {:.1f} % of bound reached", "bound max(F+B, C)", seconds(report.bound_s), share));
  if (!report.fusion.empty()) {
    line("  groups: " + report.fusion);
  }
  if (report.groups.empty()) {
    return out;
  }
  // All groups where they fit on a screen, otherwise those that compute waited for most.
  constexpr std::size_t kMaxShown = 12;
  std::vector<std::size_t> shown(report.groups.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    shown[i] = i;
  }
  double hidden_s = 0;
  if (shown.size() > kMaxShown) {
    std::ranges::sort(shown, [&](std::size_t a, std::size_t b) {
      return std::pair(-report.groups[a].exposed_s, a) < std::pair(-report.groups[b].exposed_s, b);
    });
    for (std::size_t i = kMaxShown; i < shown.size(); ++i) {
      hidden_s += report.groups[shown[i]].exposed_s;
    }
    shown.resize(kMaxShown);
    std::ranges::sort(shown);
  }
  line(fmt::format("  {:>5} {:>11} {:>14} {:>14} {:>14}", "group", "size", "RS", "AG", "exposed"));
  for (const std::size_t i : shown) {
    const GroupReport& group = report.groups[i];
    line(fmt::format("  {:>5} {:>11} {:>14} {:>14} {:>14}", i, base::format_bytes(static_cast<double>(group.bytes)),
                     seconds(group.reduce_scatter_s), seconds(group.all_gather_s), seconds(group.exposed_s)));
  }
  if (shown.size() < report.groups.size()) {
    line(fmt::format("  and {} exposed less, {} together", base::counted(report.groups.size() - shown.size(), "group"), seconds(hidden_s)));
  }
  return out;
}

std::string slow_ranks(const std::map<int, Report>& by_rank, const std::map<int, std::string>& hosts) {
  constexpr double kStandsOut = 1.2;
  std::string out;
  for (const auto& [rank, report] : by_rank) {
    std::vector<double> others;
    for (const auto& [other, other_report] : by_rank) {
      if (other != rank) {
        others.push_back(other_report.forward_s + other_report.backward_s);
      }
    }
    if (others.empty()) {
      break;
    }
    const double usual = median(std::move(others));
    const double own = report.forward_s + report.backward_s;
    if (usual > 0 && own > kStandsOut * usual) {
      const auto host = hosts.find(rank);
      out += fmt::format("maypole: rank {} on host {} is slow: forward + backward takes it {}, the others {} ({:.0f} % more)\n", rank,
                         host == hosts.end() ? "?" : host->second, seconds(own), seconds(usual), (own / usual - 1) * 100);
    }
  }
  return out;
}

absl::StatusOr<std::string> merge_timelines(const std::map<int, RankTimeline>& by_rank) {
  std::map<int, json> events_of;
  std::map<std::string, double> first_of_machine;
  for (const auto& [rank, timeline] : by_rank) {
    try {
      json parsed = json::parse(timeline.json);
      json events = parsed.is_array() ? std::move(parsed) : std::move(parsed.at("traceEvents"));
      const auto [first, fresh] = first_of_machine.try_emplace(timeline.machine, std::numeric_limits<double>::infinity());
      first->second = std::min(first->second, first_time(events));
      events_of[rank] = std::move(events);
    } catch (const json::exception& exception) {
      return base::error(absl::StatusCode::kInvalidArgument, "the timeline of rank {} is damaged: {}", rank, exception.what());
    }
  }
  std::string merged = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const char* separator = "";
  const auto add = [&](const json& event) {
    merged += separator;
    merged += event.dump(-1, ' ', false, json::error_handler_t::replace);
    separator = ",\n";
  };
  const double reference = by_rank.empty() ? 0 : first_of_machine[by_rank.begin()->second.machine];
  for (auto& [rank, events] : events_of) {
    const RankTimeline& timeline = by_rank.at(rank);
    // Clocks that are set well differ by less than what the ranks' first events do; a larger difference is a clock that is wrong.
    constexpr double kWrongClock = 1e6;  // microseconds
    double shift = reference - first_of_machine[timeline.machine];
    shift = std::isfinite(shift) && std::abs(shift) > kWrongClock ? shift : 0;  // infinite where nothing was recorded
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", fmt::format("rank {} on {}", rank, timeline.host)}}}});
    add({{"ph", "M"}, {"name", "process_sort_index"}, {"pid", rank}, {"args", {{"sort_index", rank}}}});
    for (json& event : events) {
      const bool names_process = event.value("ph", "") == "M" && event.value("name", "").starts_with("process_");
      if (names_process) {
        continue;
      }
      event["pid"] = rank;
      if (shift != 0 && event.contains("ts")) {
        event["ts"] = event["ts"].get<double>() + shift;
      }
      add(event);
    }
  }
  merged += "\n]}\n";
  return merged;
}

absl::Status check_writable(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) {
    return base::error(absl::StatusCode::kInvalidArgument, "'{}' is not a file name", path);
  }
  const std::string folder = folder_of(path);
  if (!std::filesystem::is_directory(folder, ignored)) {
    return base::error(absl::StatusCode::kInvalidArgument, "the folder '{}' of '{}' does not exist: make it first", folder, path);
  }
  const std::string target = written_first(path);
  const bool special = target == path;
  if (special ? ::access(path.c_str(), W_OK) != 0 : !base::Fd(::open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)).valid()) {
    return base::errno_error(errno, "'{}' cannot be written", path);
  }
  if (!special) {
    ::unlink(target.c_str());
  }
  return absl::OkStatus();
}

absl::Status write_file(const std::string& path, std::string_view text) {
  const std::string target = written_first(path);
  const bool special = target == path;
  base::Fd fd(::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) {
    return base::errno_error(errno, "write {}", path);
  }
  absl::Status status = write_all(fd, text, path);
  if (special) {
    return status;
  }
  if (status.ok() && ::close(fd.release()) != 0) {
    status = base::errno_error(errno, "write {}", path);
  }
  if (status.ok() && ::rename(target.c_str(), path.c_str()) != 0) {
    status = base::errno_error(errno, "write {}", path);
  }
  if (!status.ok()) {
    ::unlink(target.c_str());
  }
  return status;
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool remove_file(const std::string& path) {
  std::error_code ignored;
  return is_file(path) && std::filesystem::remove(path, ignored);
}

std::string write_or_keep(const std::string& path, std::string_view text) {
  const absl::Status status = write_file(path, text);
  if (status.ok()) {
    return "";
  }
  std::error_code failed;
  const std::string kept = fmt::format("{}/maypole-{}-{}", std::filesystem::temp_directory_path(failed).string(), ::getpid(),
                                       std::filesystem::path(path).filename().string());
  const bool is_kept = !failed && write_file(kept, text).ok();
  return base::message(status) + (is_kept ? fmt::format("; it is kept in {}", kept) : "");
}

std::string describe_machine() {
  std::string model = "unknown processor";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      model = line.substr(line.find(": ") + 2);
      break;
    }
  }
  struct utsname system{};
  ::uname(&system);
  return fmt::format("{}, {} cores, {} {}", model, std::thread::hardware_concurrency(), system.sysname, system.release);
}

}  // namespace maypole::cli
