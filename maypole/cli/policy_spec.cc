// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/policy_spec.h"

#include "maypole/base/status.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

namespace maypole::cli {

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = failed == std::errc() && end == text.data() + text.size();
  return whole && value >= 0 && value <= std::numeric_limits<T>::max() ? std::optional<T>(value) : std::nullopt;  // no `inf`
}

struct KnownOption {
  std::string_view written;
  std::vector<std::string_view> policies;  // those that it means something to

  [[nodiscard]] std::string_view name() const { return written.substr(0, written.find('=')); }
};

/// The options of a policy.
std::vector<KnownOption> options_of(std::string_view policy) {
  const std::vector<std::string_view> placed = {"fifo", "srtf", "drf", "las", "optimus"};
  const std::vector<std::string_view> gadgets = {"gadget", "gadget-blind"};
  std::vector<KnownOption> options = {{"topology", placed},
                                      {"threshold=S", {"las"}},
                                      {"continuous", {"las"}},
                                      {"ageing=R", gadgets},
                                      {"published", {"gadget-paper"}},
                                      {"roundings=N", {"gadget-paper"}},
                                      {"pivots=N", {"gadget", "gadget-blind", "gadget-paper"}},
                                      {"columns=N", gadgets},
                                      {"tries=N", gadgets},
                                      {"nodes=N", {"exact"}}};
  std::erase_if(options, [&](const KnownOption& option) { return std::ranges::find(option.policies, policy) == option.policies.end(); });
  return options;
}

/// Sets the option; false where there is none of that name, or its value is not a number of at least 0.
bool set_option(sched::PolicyOptions& options, const std::string& option) {
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos) {
    if (option == "topology") {
      options.topology_aware = true;
    } else if (option == "continuous") {
      options.las_threshold_s = -1;
    } else if (option == "published") {
      options.paper_as_published = true;
    } else {
      return false;
    }
    return true;
  }
  const std::string name = option.substr(0, equals);
  const std::string_view value = std::string_view(option).substr(equals + 1);
  const auto set = [](auto& field, auto given) {
    if (given) {
      field = *given;
    }
    return given.has_value();
  };
  if (name == "threshold") {
    return set(options.las_threshold_s, number<double>(value));
  }
  if (name == "ageing") {
    return set(options.ageing_per_s, number<double>(value));
  }
  if (name == "roundings") {
    return set(options.paper_roundings, number<int>(value));
  }
  if (name == "pivots") {
    return set(options.max_pivots, number<std::int64_t>(value));
  }
  if (name == "columns") {
    return set(options.max_columns, number<std::int64_t>(value));
  }
  if (name == "nodes") {
    return set(options.exact_nodes, number<std::int64_t>(value));
  }
  return name == "tries" && set(options.max_roundings, number<std::int64_t>(value));
}

}  // namespace

absl::StatusOr<PolicySpec> parse_policy(std::string_view text) {
  PolicySpec spec;
  spec.text = std::string(text);
  const std::vector<std::string> parts = split(text, ':');
  spec.name = parts.front();
  MAYPOLE_RETURN_IF_ERROR(sched::make_policy(spec.name, spec.options).status());
  const std::vector<KnownOption> known = options_of(spec.name);
  std::vector<std::string_view> given;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view name = std::string_view(parts[i]).substr(0, parts[i].find('='));
    if (std::ranges::find(known, name, &KnownOption::name) == known.end() || !set_option(spec.options, parts[i])) {
      std::vector<std::string_view> written;
      std::ranges::transform(known, std::back_inserter(written), &KnownOption::written);
      return base::error(absl::StatusCode::kInvalidArgument, "'{}' is no option of {}: write {}; numbers of at least 0", parts[i],
                         spec.name, fmt::join(written, ", "));
    }
    if (std::ranges::find(given, name) != given.end()) {
      return base::error(absl::StatusCode::kInvalidArgument, "the option {} of {} is there twice: keep one", name, spec.name);
    }
    given.push_back(name);
  }
  const auto has = [&](std::string_view name) { return std::ranges::find(given, name) != given.end(); };
  if (has("continuous") && has("threshold")) {
    return base::error(absl::StatusCode::kInvalidArgument, "'{}': continuous means no threshold: keep one of the two", text);
  }
  return spec;
}

absl::StatusOr<std::vector<PolicySpec>> parse_policies(std::string_view text) {
  std::vector<PolicySpec> specs;
  for (const std::string& part : split(text, ',')) {
    MAYPOLE_ASSIGN_OR_RETURN(PolicySpec spec, parse_policy(part));
    if (std::ranges::find(specs, spec.text, &PolicySpec::text) != specs.end()) {
      return base::error(absl::StatusCode::kInvalidArgument, "'{}' is there twice: name it once", spec.text);
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::string policy_help() {
  return fmt::format(
      "Policies: {}.\nOptions after the name, as in las:continuous:topology\n"
      "  topology            place rings by topology (fifo, srtf, drf, las, optimus)\n"
      "  threshold=S         las: GPU-seconds after which a job falls into the second queue\n"
      "  continuous          las: no queues\n"
      "  ageing=R            gadget: what a waiting job gains per second, as a share of its best gain; default: by its length\n"
      "  pivots=N, columns=N, tries=N   gadget: limits of work per slot\n"
      "  nodes=N             exact: nodes of the search per slot; beyond them the answer is marked, with its proven gap\n"
      "  roundings=N         gadget-paper: roundings at most\n"
      "  published           gadget-paper: violations stand and are counted",
      fmt::join(sched::policy_names(), ", "));
}

}  // namespace maypole::cli
