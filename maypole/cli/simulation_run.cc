// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/simulation_run.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/progress_bar.h"
#include "maypole/sim/horizon_bound.h"
#include "maypole/sim/offered_load.h"
#include "maypole/sim/reach_alone.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace maypole::cli {

namespace {

using Json = nlohmann::ordered_json;

Json number(std::optional<double> value) { return value && std::isfinite(*value) ? Json(*value) : Json(nullptr); }

std::string seconds(std::optional<double> value) { return value ? base::format_seconds(*value) : "-"; }

}  // namespace

absl::StatusOr<SimulationRun> run_policy(const model::Instance& instance, const PolicySpec& policy, sim::SimulationOptions options) {
  MAYPOLE_ASSIGN_OR_RETURN(std::unique_ptr<sched::Policy> made, sched::make_policy(policy.name, policy.options));
  ProgressBar bar(policy.text);
  options.on_progress = [&](std::int64_t slots, std::size_t ended) {
    const double share = instance.slots > 0 ? static_cast<double>(slots) / instance.slots
                                            : static_cast<double>(ended) / std::max<double>(1, static_cast<double>(instance.jobs.size()));
    bar.show(share, fmt::format("slot {}, {} of {} jobs ended", slots, ended, instance.jobs.size()));
  };
  const base::SteadyClock clock;
  MAYPOLE_ASSIGN_OR_RETURN(sim::Simulation simulation, sim::simulate(instance, std::move(made), options, clock));
  SimulationRun run{policy, std::move(simulation), {}};
  run.metrics = sim::metrics_of(run.simulation, instance);
  return run;
}

UtilityBound utility_bound(const model::Instance& instance) {
  const sim::HorizonBound bound = sim::horizon_bound(instance);
  return {bound.value, bound.priced ? "LP bound of the horizon" : "sum of what each job could reach alone"};
}

std::string simulation_json(const SimulationRun& run, const Scenario& scenario, const UtilityBound& bound) {
  const sim::Metrics& m = run.metrics;
  const model::Instance& instance = scenario.instance;
  const sim::OfferedLoad offered = sim::offered_load(instance);
  Json json;
  json["policy"] = run.policy.text;
  json["seed"] = instance.seed;
  json["servers"] = instance.cluster.num_servers();
  json["slot_s"] = instance.slot_s;
  json["slots"] = run.simulation.num_slots;
  json["total_utility"] = m.total_utility;
  json["utility_bound"] = number(bound.value);
  json["utility_bound_kind"] = bound.kind;
  json["reach_alone"] = number(sim::sum_of_reach_alone(instance));
  json["jct_mean_s"] = number(m.jct_mean_s);
  json["jct_p50_s"] = number(m.jct_p50_s);
  json["jct_p95_s"] = number(m.jct_p95_s);
  json["jct_p99_s"] = number(m.jct_p99_s);
  json["queueing_mean_s"] = number(m.queueing_mean_s);
  json["queueing_p95_s"] = number(m.queueing_p95_s);
  json["makespan_s"] = number(m.makespan_s);
  json["jobs"] = m.jobs;
  json["jobs_finished"] = m.jobs_finished;
  json["jobs_never_started"] = m.jobs_never_started;
  json["fairness_mean"] = number(m.fairness_mean);
  json["fairness_max"] = number(m.fairness_max);
  json["utilisation"] = m.utilisation;
  json["gpu_hours"] = m.gpu_hours;
  json["resizes"] = m.resizes;
  json["resizes_per_job"] = m.resizes_per_job;
  json["preemptions"] = m.preemptions;
  json["preemptions_per_job"] = m.preemptions_per_job;
  json["embedded_share"] = m.embedded_share;
  json["rack_crossings_mean"] = m.rack_crossings_mean;
  json["reserved_bytes_per_s_mean"] = m.reserved_bytes_per_s_mean;
  json["decisions"] = m.decisions;
  json["decision_p50_s"] = number(m.decision_p50_s);
  json["decision_p99_s"] = number(m.decision_p99_s);
  json["decision_max_s"] = number(m.decision_max_s);
  json["gap_mean"] = number(m.gap_mean);
  json["gap_max"] = number(m.gap_max);
  json["limited"] = m.limited;
  json["violations"] = m.violations;
  json["first_violations"] = run.simulation.first_violations;
  json["offered_load"] = number(offered.load);
  json["overloaded"] = offered.load > sim::kOverload;
  json["stopped"] = run.simulation.stopped.empty() ? Json(nullptr) : Json(run.simulation.stopped);
  json["notes"] = scenario.notes;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string simulation_text(const SimulationRun& run, const UtilityBound& bound) {
  const sim::Metrics& m = run.metrics;
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) { text += fmt::format("{:<22}{}\n", name, value); };
  line("policy", run.policy.text);
  line("total utility", fmt::format("{:.6g} of at most {:.6g} ({}): {:.2f} %", m.total_utility, bound.value, bound.kind,
                                    bound.value > 0 ? 100 * m.total_utility / bound.value : 100.0));
  line("jobs", fmt::format("{}, {} finished, {} never started", m.jobs, m.jobs_finished, m.jobs_never_started));
  line("completion time", fmt::format("mean {}, p50 {}, p95 {}, p99 {}", seconds(m.jct_mean_s), seconds(m.jct_p50_s), seconds(m.jct_p95_s),
                                      seconds(m.jct_p99_s)));
  line("waiting for a start", fmt::format("mean {}, p95 {}", seconds(m.queueing_mean_s), seconds(m.queueing_p95_s)));
  line("makespan", seconds(m.makespan_s));
  if (m.fairness_mean) {
    line("finish-time fairness", fmt::format("mean {:.2f}, worst {:.2f} (1 is fair)", *m.fairness_mean, *m.fairness_max));
  }
  line("utilisation", fmt::format("{:.1f} %, {:.1f} GPU-hours", 100 * m.utilisation, m.gpu_hours));
  line("per job", fmt::format("{:.2f} resizes, {:.2f} preemptions", m.resizes_per_job, m.preemptions_per_job));
  line("jobs with workers", fmt::format("{:.1f} % of those there", 100 * m.embedded_share));
  const base::Bandwidth reserved{m.reserved_bytes_per_s_mean};
  line("links", fmt::format("{:.1f} rack crossings, {} reserved, mean of a slot", m.rack_crossings_mean,
                            reserved.limited() ? base::format_bandwidth(reserved) : "nothing"));
  line("decisions", fmt::format("{} of {} slots, p50 {}, p99 {}, longest {}", m.decisions, run.simulation.num_slots,
                                seconds(m.decision_p50_s), seconds(m.decision_p99_s), seconds(m.decision_max_s)));
  if (m.gap_mean) {
    line("gap to the bound",
         fmt::format("mean {:.3f} %, worst {:.3f} %, {} decisions cut by a limit of work", 100 * *m.gap_mean, 100 * *m.gap_max, m.limited));
  }
  line("violations", fmt::format("{}", m.violations));
  for (const std::string& violation : run.simulation.first_violations) {
    text += fmt::format("  {}\n", violation);
  }
  if (!run.simulation.stopped.empty()) {
    line("stopped early", run.simulation.stopped);
  }
  return text;
}

std::string overload_text(const model::Instance& instance) {
  const sim::OfferedLoad offered = sim::offered_load(instance);
  if (offered.load <= sim::kOverload) {
    return "";
  }
  return fmt::format("the workload is overloaded: {} its jobs ask for {:.2f} times the cluster's {}",
                     instance.slots > 0 ? "up to the horizon" : "while they arrive,", offered.load, offered.resource);
}

}  // namespace maypole::cli
