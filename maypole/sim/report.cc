// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/report.h"

#include "maypole/base/units.h"
#include "maypole/sim/html_page.h"
#include "maypole/sim/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace maypole::sim {

namespace {

constexpr std::size_t kPoints = 600;     // of a line; more would not be seen
constexpr std::size_t kGanttRows = 180;  // jobs that a Gantt chart shows
constexpr std::size_t kGanttBars = 15000;

struct TimeUnit {
  double seconds = 1;
  const char* name = "s";
};

TimeUnit unit_for(double span_s) {
  if (span_s > 3 * 86400) {
    return {86400, "days"};
  }
  if (span_s > 3 * 3600) {
    return {3600, "hours"};
  }
  return span_s > 600 ? TimeUnit{60, "minutes"} : TimeUnit{1, "seconds"};
}

std::string seconds_text(std::optional<double> value) { return value ? base::format_seconds(*value) : "-"; }

struct Column {
  std::string name;
  std::string (*text)(const Metrics&, double bound);
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"utility", [](const Metrics& m, double) { return fmt::format("{:.6g}", m.total_utility); }},
      {"of bound", [](const Metrics& m, double bound) { return bound > 0 ? fmt::format("{:.2f} %", 100 * m.total_utility / bound) : "-"; }},
      {"finished", [](const Metrics& m, double) { return fmt::format("{}/{}", m.jobs_finished, m.jobs); }},
      {"JCT mean", [](const Metrics& m, double) { return seconds_text(m.jct_mean_s); }},
      {"JCT p50", [](const Metrics& m, double) { return seconds_text(m.jct_p50_s); }},
      {"JCT p95", [](const Metrics& m, double) { return seconds_text(m.jct_p95_s); }},
      {"JCT p99", [](const Metrics& m, double) { return seconds_text(m.jct_p99_s); }},
      {"queueing", [](const Metrics& m, double) { return seconds_text(m.queueing_mean_s); }},
      {"makespan", [](const Metrics& m, double) { return seconds_text(m.makespan_s); }},
      {"fairness", [](const Metrics& m, double) { return m.fairness_mean ? fmt::format("{:.2f}", *m.fairness_mean) : "-"; }},
      {"used", [](const Metrics& m, double) { return fmt::format("{:.1f} %", 100 * m.utilisation); }},
      {"embedded", [](const Metrics& m, double) { return fmt::format("{:.1f} %", 100 * m.embedded_share); }},
      {"resizes/job", [](const Metrics& m, double) { return fmt::format("{:.2f}", m.resizes_per_job); }},
      {"preempt./job", [](const Metrics& m, double) { return fmt::format("{:.2f}", m.preemptions_per_job); }},
      {"crossings", [](const Metrics& m, double) { return fmt::format("{:.1f}", m.rack_crossings_mean); }},
      {"decision p99", [](const Metrics& m, double) { return seconds_text(m.decision_p99_s); }},
      {"gap", [](const Metrics& m, double) { return m.gap_mean ? fmt::format("{:.3f} %", 100 * *m.gap_mean) : "-"; }},
      {"violations", [](const Metrics& m, double) { return fmt::format("{}", m.violations); }},
  };
  return all;
}

/// Means of runs of samples, so that at most kPoints points remain. Idle time has no samples: the line goes straight across it.
template <typename Value>
std::vector<std::pair<double, double>> thinned(const Simulation& simulation, const TimeUnit& unit, Value value) {
  std::vector<std::pair<double, double>> points;
  const std::size_t run = std::max<std::size_t>(1, (simulation.slots.size() + kPoints - 1) / kPoints);
  for (std::size_t begin = 0; begin < simulation.slots.size(); begin += run) {
    const std::size_t end = std::min(begin + run, simulation.slots.size());
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      sum += value(simulation.slots[i]);
    }
    const double at_s = static_cast<double>(simulation.slots[end - 1].slot + 1) * simulation.slot_s;
    points.emplace_back(at_s / unit.seconds, sum / static_cast<double>(end - begin));
  }
  return points;
}

std::vector<std::pair<double, double>> completion_curve(const Simulation& simulation, const TimeUnit& unit) {
  std::vector<double> times;
  for (const JobOutcome& job : simulation.jobs) {
    if (job.ended_s) {
      times.push_back(*job.ended_s - job.arrival_s);
    }
  }
  std::ranges::sort(times);
  std::vector<std::pair<double, double>> points;
  if (!times.empty()) {
    points.emplace_back(0, 0);
  }
  const std::size_t run = std::max<std::size_t>(1, times.size() / kPoints);
  for (std::size_t i = 0; i < times.size(); i += run) {
    points.emplace_back(times[i] / unit.seconds, 100.0 * static_cast<double>(i + 1) / static_cast<double>(simulation.jobs.size()));
  }
  if (!times.empty()) {
    points.emplace_back(times.back() / unit.seconds,
                        100.0 * static_cast<double>(times.size()) / static_cast<double>(simulation.jobs.size()));
  }
  return points;
}

std::string gantt(const ReportRun& run, const TimeUnit& unit) {
  const Simulation& simulation = *run.simulation;
  const double scale = simulation.slot_s / unit.seconds;
  BarChart chart;
  chart.x_label = fmt::format("time, {}", unit.name);
  chart.y_label = "jobs, by arrival";
  chart.amount_label = "workers";
  std::size_t bars = 0;
  for (std::size_t i = 0; i < simulation.jobs.size() && i < kGanttRows && bars < kGanttBars; ++i) {
    const JobOutcome& job = simulation.jobs[i];
    const double end_s = job.ended_s.value_or(static_cast<double>(simulation.num_slots) * simulation.slot_s);
    std::vector<Bar> row = {{job.arrival_s / unit.seconds, end_s / unit.seconds, 0}};
    for (const WorkerSpan& span : simulation.timelines[i]) {
      const double span_end = std::min(static_cast<double>(span.end) * scale, end_s / unit.seconds);
      row.push_back({static_cast<double>(span.begin) * scale, span_end, span.workers});
    }
    chart.x_end = std::max(chart.x_end, end_s / unit.seconds);
    bars += row.size();
    chart.rows.emplace_back(job.id, std::move(row));
  }
  const std::size_t shown = chart.rows.size();
  chart.title = fmt::format("{}: workers per job{}", run.name,
                            shown < simulation.jobs.size() ? fmt::format(" (the first {} of {} jobs)", shown, simulation.jobs.size()) : "");
  return bar_chart_svg(chart);
}

/// A column a policy: a handful of them fits any screen, eighteen figures side by side do not.
std::string html_table(std::span<const ReportRun> runs, double bound) {
  std::string html = "<table><thead><tr><th>policy</th>";
  for (const ReportRun& run : runs) {
    html += fmt::format("<th>{}</th>", escaped(run.name));
  }
  html += "</tr></thead><tbody>\n";
  for (const Column& column : columns()) {
    html += fmt::format("<tr><th>{}</th>", escaped(column.name));
    for (const ReportRun& run : runs) {
      html += fmt::format("<td>{}</td>", escaped(column.text(*run.metrics, bound)));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

}  // namespace

std::string report_table(std::span<const ReportRun> runs, double utility_bound) {
  std::vector<std::vector<std::string>> lines(1, {"policy"});
  for (const Column& column : columns()) {
    lines[0].push_back(column.name);
  }
  for (const ReportRun& run : runs) {
    std::vector<std::string>& line = lines.emplace_back();
    line.push_back(run.name);
    for (const Column& column : columns()) {
      line.push_back(column.text(*run.metrics, utility_bound));
    }
  }
  std::vector<std::size_t> widths(lines[0].size(), 0);
  for (const std::vector<std::string>& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const std::vector<std::string>& line : lines) {
    text += fmt::format("{:<{}}", line[0], widths[0]);
    for (std::size_t i = 1; i < line.size(); ++i) {
      text += fmt::format("  {:>{}}", line[i], widths[i]);
    }
    text += '\n';
  }
  return text;
}

std::string report_html(std::span<const ReportRun> runs, const model::Instance& instance, const ReportText& text) {
  double span_s = 0;
  double longest_s = 0;
  for (const ReportRun& run : runs) {
    span_s = std::max(span_s, static_cast<double>(run.simulation->num_slots) * run.simulation->slot_s);
    longest_s = std::max(longest_s, run.metrics->jct_p99_s.value_or(0));
  }
  const TimeUnit unit = unit_for(span_s);
  const TimeUnit jct_unit = unit_for(longest_s);
  const double capacity = instance.cluster.total_capacity()[instance.cluster.accelerator()];
  LineChart utility{"Utility over time", fmt::format("time, {}", unit.name), "sum of utilities", {}, true};
  LineChart used{"Utilisation",
                 fmt::format("time, {}", unit.name),
                 fmt::format("% of {} {}", capacity, instance.cluster.resource(instance.cluster.accelerator())),
                 {},
                 true};
  LineChart completion{
      "Completion times", fmt::format("time from arrival to end, {}", jct_unit.name), "% of all jobs ended by then", {}, true,
      "no job ended"};
  for (const ReportRun& run : runs) {
    utility.series.push_back({run.name, thinned(*run.simulation, unit, [](const SlotSample& slot) { return slot.utility; }), false});
    used.series.push_back(
        {run.name, thinned(*run.simulation, unit, [&](const SlotSample& slot) { return 100 * slot.accelerators / capacity; }), false});
    completion.series.push_back({run.name, completion_curve(*run.simulation, jct_unit), true});
  }
  utility.series.push_back({"bound at the horizon", {{0, text.utility_bound}, {span_s / unit.seconds, text.utility_bound}}, false});
  if (!std::isfinite(text.utility_bound)) {
    utility.series.pop_back();
  }
  std::string html =
      fmt::format("<p>{} jobs, {} servers, {:g} {}, slots of {}. The bound on utility is the {}: {:.6g}.</p>\n", instance.jobs.size(),
                  instance.cluster.num_servers(), capacity, escaped(instance.cluster.resource(instance.cluster.accelerator())),
                  base::format_seconds(instance.slot_s), escaped(text.utility_bound_kind), text.utility_bound);
  for (const std::string& note : text.notes) {
    html += fmt::format("<p>{}</p>\n", escaped(note));
  }
  html += html_wide(html_table(runs, text.utility_bound));
  for (const LineChart& chart : {utility, completion, used}) {
    html += html_wide(line_chart_svg(chart));
  }
  for (const ReportRun& run : runs) {
    html += html_wide(gantt(run, unit));
    if (!run.simulation->stopped.empty()) {
      html += fmt::format("<p>{} stopped early: {}.</p>\n", escaped(run.name), escaped(run.simulation->stopped));
    }
  }
  return html_page(text.title, html);
}

}  // namespace maypole::sim
