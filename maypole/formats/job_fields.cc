// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/job_fields.h"

#include "maypole/base/status.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/formats/text_file.h"

#include <array>
#include <limits>

namespace maypole::formats {

namespace {

using model::OverlapSchedule;
using model::ProgressKind;
using model::UtilityKind;

constexpr std::array kUtilityKinds = {UtilityKind::kSqrt,   UtilityKind::kLog,     UtilityKind::kLinear,
                                      UtilityKind::kEnergy, UtilityKind::kSigmoid, UtilityKind::kDeadline};
constexpr std::array kProgressKinds = {ProgressKind::kConstant, ProgressKind::kPower,   ProgressKind::kRing,
                                       ProgressKind::kOverlap,  ProgressKind::kProfile, ProgressKind::kTable};
constexpr std::int64_t kMostWorkers = std::numeric_limits<int>::max();
constexpr std::array kSchedules = {OverlapSchedule::kSync, OverlapSchedule::kWfbp, OverlapSchedule::kDear, OverlapSchedule::kWeave};

template <typename Kinds>
std::string names_of(const Kinds& kinds) {
  std::string names;
  for (const auto kind : kinds) {
    names += names.empty() ? "" : ", ";
    names += name_of(kind);
  }
  return names;
}

template <typename Kinds>
std::optional<typename Kinds::value_type> find_kind(const Kinds& kinds, std::string_view name) {
  for (const auto kind : kinds) {
    if (name_of(kind) == name) {
      return kind;
    }
  }
  return std::nullopt;
}

template <typename Kinds>
typename Kinds::value_type read_kind(const Kinds& kinds, const Value& value) {
  const std::string name = value.text();
  const auto kind = find_kind(kinds, name);
  if (!kind) {
    value.problem(fmt::format("there is no kind '{}': give one of {}", name, names_of(kinds)));
  }
  return kind.value_or(kinds.front());
}

}  // namespace

std::string limit_json(base::Bandwidth bandwidth) {
  return json_number(bandwidth.limited() ? std::optional(bandwidth.bytes_per_second) : std::nullopt);
}

base::Bandwidth read_limit(const Value& value) {
  const std::optional<double> rate = value.optional_number();
  if (rate && *rate <= 0) {
    value.problem(fmt::format("{} is no rate: give bytes per second above 0, or null where there is no limit", *rate));
  }
  return {rate.value_or(0)};
}

std::optional<UtilityKind> utility_kind(std::string_view name) { return find_kind(kUtilityKinds, name); }
std::string utility_kinds() { return names_of(kUtilityKinds); }

model::Utility read_utility(const Value& value, double* weight) {
  model::Utility utility;
  Map map(value);
  utility.kind = read_kind(kUtilityKinds, map["kind"]);
  switch (utility.kind) {
    case UtilityKind::kSqrt:
    case UtilityKind::kLog:
    case UtilityKind::kLinear:
      break;
    case UtilityKind::kEnergy:
      utility.cost = map["cost"].number();
      break;
    case UtilityKind::kSigmoid:
      utility.sensitivity = map["sensitivity"].number();
      utility.expected = map["expected"].number();
      break;
    case UtilityKind::kDeadline:
      utility.deadline_s = read_duration_s(map["deadline_s"]);
      utility.late = map["late"].optional_number().value_or(0);
      utility.work = map["work"].number();
      break;
  }
  if (weight != nullptr) {
    *weight = map["weight"].optional_number().value_or(1);
  }
  map.refuse_others();
  return utility;
}

std::string utility_json(const model::Utility& utility) {
  const std::string kind = fmt::format("{{\"kind\": \"{}\"", name_of(utility.kind));
  switch (utility.kind) {
    case UtilityKind::kSqrt:
    case UtilityKind::kLog:
    case UtilityKind::kLinear:
      return kind + "}";
    case UtilityKind::kEnergy:
      return fmt::format("{}, \"cost\": {}}}", kind, format_number(utility.cost));
    case UtilityKind::kSigmoid:
      return fmt::format("{}, \"sensitivity\": {}, \"expected\": {}}}", kind, format_number(utility.sensitivity),
                         format_number(utility.expected));
    case UtilityKind::kDeadline:
      return fmt::format("{}, \"deadline_s\": {}, \"late\": {}, \"work\": {}}}", kind, format_number(utility.deadline_s),
                         format_number(utility.late), format_number(utility.work));
  }
  return kind + "}";
}

model::ProgressModel read_progress(const Value& value) {
  model::ProgressModel progress;
  Map map(value);
  progress.kind = read_kind(kProgressKinds, map["kind"]);
  switch (progress.kind) {
    case ProgressKind::kConstant:
      progress.zeta = map["zeta"].number();
      break;
    case ProgressKind::kPower:
      progress.zeta = map["zeta"].number();
      progress.exponent = map["exponent"].number();
      progress.reference = map["reference"].number();
      break;
    case ProgressKind::kOverlap:
      progress.schedule = read_kind(kSchedules, map["schedule"]);
      [[fallthrough]];
    case ProgressKind::kRing:
      progress.gradient_bytes = map["gradient_bytes"].number();
      progress.reduce_bytes_per_s = map["reduce_bytes_per_s"].number();
      progress.forward_s = map["forward_s"].number();
      progress.backward_s = map["backward_s"].number();
      progress.latency_s = map["latency_s"].number();
      progress.bandwidth = read_limit(map["bandwidth"]);
      progress.local_bandwidth = read_limit(map["local_bandwidth"]);
      break;
    case ProgressKind::kProfile:
      progress.bandwidth = read_limit(map["bandwidth"]);
      progress.local_bandwidth = read_limit(map["local_bandwidth"]);
      for (const Value& item : map["iterations"].list()) {
        Map point(item);
        progress.iterations.push_back({static_cast<int>(point["workers"].integer(1, kMostWorkers)), point["spread"].boolean(),
                                       point["s_per_byte"].number(), point["iteration_s"].number()});
        point.refuse_others();
      }
      break;
    case ProgressKind::kTable:
      for (const Value& item : map["points"].list()) {
        Map point(item);
        progress.points.push_back({static_cast<int>(point["workers"].integer(1, kMostWorkers)),
                                   static_cast<int>(point["servers"].integer(1, kMostWorkers)), point["rate"].number()});
        point.refuse_others();
      }
      break;
  }
  progress.resize_s = map["resize_s"].optional_number().value_or(0);
  map.refuse_others();
  return progress;
}

absl::StatusOr<model::ProgressModel> read_progress_file(const std::string& folder, const std::string& name) {
  if (folder.empty()) {
    return base::error(absl::StatusCode::kInvalidArgument, "a file such as '{}' is read only where this text is a file itself", name);
  }
  const std::string path = folder + "/" + name;
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  MAYPOLE_ASSIGN_OR_RETURN(const Node node, parse_json(text, file_name(path)));
  Problems problems{file_name(path)};
  model::ProgressModel progress = read_progress(Value(&node, 0, "", &problems));
  MAYPOLE_RETURN_IF_ERROR(problems.status());
  return progress;
}

std::string progress_json(const model::ProgressModel& progress) {
  std::string text = fmt::format("{{\"kind\": \"{}\"", name_of(progress.kind));
  const auto add = [&](std::string_view name, const std::string& value) { text += fmt::format(", \"{}\": {}", name, value); };
  switch (progress.kind) {
    case ProgressKind::kConstant:
      add("zeta", format_number(progress.zeta));
      break;
    case ProgressKind::kPower:
      add("zeta", format_number(progress.zeta));
      add("exponent", format_number(progress.exponent));
      add("reference", format_number(progress.reference));
      break;
    case ProgressKind::kOverlap:
      add("schedule", json_string(name_of(progress.schedule)));
      [[fallthrough]];
    case ProgressKind::kRing:
      add("gradient_bytes", format_number(progress.gradient_bytes));
      add("reduce_bytes_per_s", format_number(progress.reduce_bytes_per_s));
      add("forward_s", format_number(progress.forward_s));
      add("backward_s", format_number(progress.backward_s));
      add("latency_s", format_number(progress.latency_s));
      add("bandwidth", limit_json(progress.bandwidth));
      add("local_bandwidth", limit_json(progress.local_bandwidth));
      break;
    case ProgressKind::kProfile: {
      add("bandwidth", limit_json(progress.bandwidth));
      add("local_bandwidth", limit_json(progress.local_bandwidth));
      std::string points;
      for (const model::IterationPoint& point : progress.iterations) {
        points += fmt::format("{}{{\"workers\": {}, \"spread\": {}, \"s_per_byte\": {}, \"iteration_s\": {}}}", points.empty() ? "" : ", ",
                              point.workers, point.spread, format_number(point.s_per_byte), format_number(point.iteration_s));
      }
      add("iterations", "[" + points + "]");
      break;
    }
    case ProgressKind::kTable: {
      std::string points;
      for (const model::RatePoint& point : progress.points) {
        points += fmt::format("{}{{\"workers\": {}, \"servers\": {}, \"rate\": {}}}", points.empty() ? "" : ", ", point.workers,
                              point.servers, format_number(point.rate));
      }
      add("points", "[" + points + "]");
      break;
    }
  }
  add("resize_s", format_number(progress.resize_s));
  return text + "}";
}

NamedAmounts read_amounts(const Value& value) {
  NamedAmounts amounts;
  for (const Value::Entry& entry : value.entries()) {
    const std::string text = entry.value.scalar();
    std::optional<double> amount = parse_number(text);
    if (!amount) {
      const absl::StatusOr<std::uint64_t> bytes = base::parse_bytes(text);
      if (bytes.ok() && (entry.name.starts_with("gpu") || entry.name.starts_with("cpu"))) {
        entry.value.problem(fmt::format("'{}' is a size, and {} are counted: give a number", text, entry.name));
      }
      if (bytes.ok()) {
        amount = static_cast<double>(*bytes);
      }
    }
    if (!amount || *amount < 0) {
      entry.value.problem(fmt::format("'{}' is no amount: give a number of at least 0, or a size such as 4GB", text));
    }
    amounts.emplace_back(entry.name, amount.value_or(0));
  }
  return amounts;
}

std::string amounts_json(const model::Amounts& amounts, const model::Cluster& cluster) {
  std::string text;
  for (std::size_t i = 0; i < amounts.size(); ++i) {
    const model::ResourceId resource = model::ResourceId::from_index(i);
    text += fmt::format("{}{}: {}", i == 0 ? "" : ", ", json_string(cluster.resource(resource)), format_number(amounts[resource]));
  }
  return "{" + text + "}";
}

base::Bandwidth read_bandwidth(const Value& value, bool payload) {
  const std::string text = value.scalar();
  if (const std::optional<double> bare = parse_number(text)) {
    value.problem(fmt::format("'{}' has no unit: write a rate such as 10Gbps", text));
    return {};
  }
  const absl::StatusOr<base::Bandwidth> parsed = base::parse_bandwidth(text);
  if (!parsed.ok()) {
    value.problem(base::message(parsed.status()));
    return {};
  }
  return payload ? base::Bandwidth{parsed->bytes_per_second / base::kPayloadShare} : *parsed;
}

double read_duration_s(const Value& value) {
  const std::string text = value.scalar();
  if (const std::optional<double> seconds = parse_number(text)) {
    return *seconds;
  }
  const absl::StatusOr<base::Nanoseconds> parsed = base::parse_duration(text);
  if (!parsed.ok()) {
    value.problem(base::message(parsed.status()));
    return 0;
  }
  return base::to_seconds(*parsed);
}

}  // namespace maypole::formats
