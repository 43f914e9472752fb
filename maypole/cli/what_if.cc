// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/what_if.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/page.h"
#include "maypole/cli/simulated_picture.h"
#include "maypole/formats/json_text.h"
#include "maypole/formats/number.h"
#include "maypole/sim/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace maypole::cli {
namespace {

constexpr std::array kFaster = {2.0, 4.0, 10.0};
constexpr std::size_t kMostWorkers = 1024;
constexpr double kWorthAWorker = 0.5;
constexpr std::string_view kOurs = "weave";

double alone_s(const model::Profile& profile) { return profile.forward_s() + profile.backward_s() + profile.update_s; }

/// Samples per second; iterations per second where the profile has no batch.
double rate(const model::Profile& profile, std::size_t workers, double iteration_s) {
  return static_cast<double>(workers * std::max<std::size_t>(1, profile.batch)) / iteration_s;
}

absl::StatusOr<double> iteration_of(const model::Profile& profile, const overlap::Network& network, std::size_t workers,
                                    const WhatIfOptions& options) {
  MAYPOLE_ASSIGN_OR_RETURN(const overlap::FusionChoice choice,
                           overlap::choose_fusion(profile, network, workers, kOurs, {.num_groups = options.num_groups}));
  return choice.iteration.iteration_s;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

Table table_of(const WhatIf& answer) {
  Table table{{"workers", "schedule", "iteration", "efficiency", "samples/s", "exposed", "RS", "AG", "of bound", "best fusion"}, {}, true};
  for (const WhatIfRow& row : answer.rows) {
    const overlap::SimulatedIteration& iteration = row.choice.iteration;
    table.rows.push_back({fmt::format("{}", row.workers), row.choice.schedule, base::format_seconds(iteration.iteration_s),
                          percent(row.efficiency), fmt::format("{:.1f}", row.samples_per_s), base::format_seconds(iteration.exposed_s),
                          base::format_seconds(iteration.reduce_scatter_s), base::format_seconds(iteration.all_gather_s),
                          percent(iteration.bound_s / iteration.iteration_s), row.choice.fusion});
  }
  return table;
}

std::vector<std::string> sentences(const model::Profile& profile, const overlap::Network& network) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}, batch {}, {} in {} tensors, {} alone; {}", profile.model, profile.batch,
                              base::format_bytes(static_cast<double>(profile.bytes())), profile.tensors.size(),
                              base::format_seconds(alone_s(profile)), profile.modelled ? profile.source : "measured on " + profile.source));
  const double beta = network.between_hosts.beta_s_per_byte;
  lines.push_back(fmt::format("network {}: {}, {} by a {}", network.name, base::format_bandwidth({beta > 0 ? 1 / beta : 0}),
                              base::format_seconds(network.between_hosts.alpha_s) + " start-up", overlap::name_of(network.collective)));
  if (network.contention_s_per_byte > 0) {
    lines.push_back(fmt::format("moving a gigabyte costs {:.3g} s of computing", 1e9 * network.contention_s_per_byte));
  }
  return lines;
}

std::vector<std::string> advice(const WhatIf& answer) {
  std::vector<std::string> lines;
  if (answer.rows.empty()) {
    return lines;
  }
  const std::size_t most = answer.rows.back().workers;
  const auto ours =
      std::ranges::find_if(answer.rows, [&](const WhatIfRow& row) { return row.workers == most && row.choice.schedule == kOurs; });
  for (const LinkGain& link : answer.links) {
    lines.push_back(fmt::format("{} times the bandwidth: {} instead of {} with {} ({:.2f} times as fast)", link.factor,
                                base::format_seconds(link.iteration_s), base::format_seconds(ours->choice.iteration.iteration_s),
                                base::counted(most, "worker"), ours->choice.iteration.iteration_s / link.iteration_s));
  }
  lines.push_back(answer.enough_workers ? fmt::format("beyond {} each further one adds less than half of what one alone does",
                                                      base::counted(*answer.enough_workers, "worker"))
                                        : fmt::format("up to {} workers each one adds at least half of what one alone does", kMostWorkers));
  return lines;
}

}  // namespace

absl::StatusOr<WhatIf> what_if(const model::Profile& profile, const overlap::Network& network, const WhatIfOptions& options) {
  WhatIf answer;
  const double one_s = alone_s(profile);
  for (const std::size_t workers : options.workers) {
    for (const std::string& schedule : overlap::simulated_schedules()) {
      MAYPOLE_ASSIGN_OR_RETURN(overlap::FusionChoice choice, overlap::choose_fusion(profile, network, workers, schedule,
                                                                                    {.num_groups = options.num_groups, .record = true}));
      const double iteration_s = choice.iteration.iteration_s;
      answer.rows.push_back({workers, std::move(choice), one_s / iteration_s, rate(profile, workers, iteration_s)});
    }
  }
  const std::size_t most = options.workers.empty() ? 1 : options.workers.back();
  for (const double factor : kFaster) {
    overlap::Network faster = network;
    faster.between_hosts.beta_s_per_byte /= factor;
    MAYPOLE_ASSIGN_OR_RETURN(const double iteration_s, iteration_of(profile, faster, most, options));
    answer.links.push_back({factor, iteration_s});
  }
  for (std::size_t workers = 1; workers <= kMostWorkers; workers *= 2) {
    MAYPOLE_ASSIGN_OR_RETURN(const double iteration_s, iteration_of(profile, network, workers, options));
    answer.growth.push_back({workers, one_s / iteration_s, rate(profile, workers, iteration_s)});
  }
  const double alone = answer.growth.front().samples_per_s;
  for (std::size_t i = 0; i + 1 < answer.growth.size() && !answer.enough_workers; ++i) {
    const Growth& now = answer.growth[i];
    const Growth& doubled = answer.growth[i + 1];
    if (doubled.samples_per_s - now.samples_per_s < kWorthAWorker * alone * static_cast<double>(now.workers)) {
      answer.enough_workers = now.workers;
    }
  }
  return answer;
}

std::string what_if_text(const WhatIf& answer, const model::Profile& profile, const overlap::Network& network) {
  std::string text;
  for (const std::string& line : sentences(profile, network)) {
    text += line + "\n";
  }
  text += "\n" + text_table(table_of(answer), 2) + "\n";
  for (const std::string& line : advice(answer)) {
    text += line + "\n";
  }
  return text;
}

std::string what_if_json(const WhatIf& answer, const model::Profile& profile, const overlap::Network& network) {
  using formats::format_number;
  using formats::json_string;
  std::string text = fmt::format(
      "{{\"model\": {}, \"batch\": {}, \"modelled\": {}, \"network\": {}, \"collective\": \"{}\", "
      "\"contention_s_per_gb\": {},\n\"rows\": [",
      json_string(profile.model), profile.batch, profile.modelled, json_string(network.name), overlap::name_of(network.collective),
      format_number(1e9 * network.contention_s_per_byte));
  std::string_view before = "\n";
  for (const WhatIfRow& row : answer.rows) {
    const overlap::SimulatedIteration& iteration = row.choice.iteration;
    std::string groups;
    for (const overlap::SimulatedGroup& group : iteration.groups) {
      groups += (groups.empty() ? "" : ", ") + format_number(group.bytes);
    }
    text += fmt::format(
        "{}{{\"workers\": {}, \"schedule\": \"{}\", \"iteration_s\": {}, \"bound_s\": {}, \"exposed_s\": {}, \"reduce_scatter_s\": {}, "
        "\"all_gather_s\": {}, \"efficiency\": {}, \"samples_per_s\": {}, \"fusion\": {}, \"groups\": [{}]}}",
        before, row.workers, row.choice.schedule, format_number(iteration.iteration_s), format_number(iteration.bound_s),
        format_number(iteration.exposed_s), format_number(iteration.reduce_scatter_s), format_number(iteration.all_gather_s),
        format_number(row.efficiency), format_number(row.samples_per_s), json_string(row.choice.fusion), groups);
    before = ",\n";
  }
  text += "],\n\"links\": [";
  before = "";
  for (const LinkGain& link : answer.links) {
    text += fmt::format("{}{{\"bandwidth_factor\": {}, \"iteration_s\": {}}}", before, format_number(link.factor),
                        format_number(link.iteration_s));
    before = ", ";
  }
  text += "],\n\"growth\": [";
  before = "";
  for (const Growth& point : answer.growth) {
    text += fmt::format("{}{{\"workers\": {}, \"efficiency\": {}, \"samples_per_s\": {}}}", before, point.workers,
                        format_number(point.efficiency), format_number(point.samples_per_s));
    before = ", ";
  }
  return text + fmt::format("],\n\"enough_workers\": {}}}\n", answer.enough_workers ? fmt::to_string(*answer.enough_workers) : "null");
}

std::string what_if_html(const WhatIf& answer, const model::Profile& profile, const overlap::Network& network) {
  std::string body;
  for (const std::string& line : sentences(profile, network)) {
    body += fmt::format("<p>{}.</p>\n", sim::escaped(line));
  }
  body += html_table(table_of(answer), 2) + "<ul>\n";
  for (const std::string& line : advice(answer)) {
    body += fmt::format("<li>{}.</li>\n", sim::escaped(line));
  }
  body += "</ul>\n";
  sim::LineChart efficiency{"Scaling efficiency", "workers", "% of one worker alone", {}, true};
  std::map<std::string, std::size_t> series_of;
  for (const WhatIfRow& row : answer.rows) {
    const auto [at, fresh] = series_of.try_emplace(row.choice.schedule, efficiency.series.size());
    if (fresh) {
      efficiency.series.push_back({row.choice.schedule, {}, false});
    }
    efficiency.series[at->second].points.emplace_back(static_cast<double>(row.workers), 100 * row.efficiency);
  }
  sim::LineChart growth{
      "weave on more workers", "workers", "samples per second", {{"weave", {}, false}, {"without communication", {}, false}}, true};
  for (const Growth& point : answer.growth) {
    const auto workers = static_cast<double>(point.workers);
    growth.series[0].points.emplace_back(workers, point.samples_per_s);
    growth.series[1].points.emplace_back(workers, point.samples_per_s / point.efficiency);
  }
  body += html_figure(sim::line_chart_svg(efficiency)) + html_figure(sim::line_chart_svg(growth)) + "<h2>Where the time goes</h2>\n";
  const std::size_t most = answer.rows.empty() ? 0 : answer.rows.back().workers;
  double longest_s = 0;
  for (const WhatIfRow& row : answer.rows) {
    longest_s = std::max(longest_s, row.workers == most ? row.choice.iteration.iteration_s : 0);
  }
  for (const WhatIfRow& row : answer.rows) {
    if (row.workers == most) {
      body += html_figure(timeline_svg(picture_of(row.choice.iteration,
                                                  fmt::format("{}, {}: {}", row.choice.schedule, base::counted(most, "worker"),
                                                              base::format_seconds(row.choice.iteration.iteration_s)),
                                                  longest_s)));
    }
  }
  return html_page(fmt::format("{} on {}", profile.model, network.name), body);
}

}  // namespace maypole::cli
