// SPDX-License-Identifier: Apache-2.0
//
// How fast the iteration simulator and the search for cuts are, and how close cuts come to brute force: one JSON object a line, after
// `RESULT `. Started by bench_plan.py.

#include "maypole/base/check.h"
#include "maypole/base/rng.h"
#include "maypole/overlap/cut_line.h"
#include "maypole/overlap/iteration_simulator.h"
#include "maypole/overlap/network_model.h"
#include "maypole/overlap/paper_models.h"
#include "maypole/overlap/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace {

using namespace maypole;

constexpr std::size_t kWorkers = 64;
constexpr std::size_t kBlockBytes = 256 << 10;
constexpr const char* kSchedules[] = {"wfbp", "dear", "weave"};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Iterations per second of simulate() with everything around it: groups from a plan, an iteration, its times.
void time_simulator(const model::Profile& profile, const overlap::Network& network) {
  for (const char* name : kSchedules) {
    const auto schedule = overlap::make_schedule(name).value();
    const overlap::FusionPlan plan =
        overlap::plan_fusion(overlap::planned_tensors(profile), {.group_bytes = 1 << 20, .first_group_bytes = 256 << 10}).value();
    constexpr int kRuns = 500;
    std::vector<double> rates;
    for (int round = 0; round < 5; ++round) {
      double sum_s = 0;
      const double begin_s = now_s();
      for (int run = 0; run < kRuns; ++run) {
        sum_s += overlap::simulate(profile, network, kWorkers, *schedule, plan).iteration_s;
      }
      rates.push_back(kRuns / (now_s() - begin_s));
      MAYPOLE_CHECK(sum_s >= kRuns * (profile.forward_s() + profile.backward_s()) * (1 - 1e-9));
    }
    fmt::print(
        "RESULT {{\"kind\": \"simulator\", \"model\": \"{}\", \"workers\": {}, \"schedule\": \"{}\", \"groups\": {}, "
        "\"iterations_per_s\": {:.1f}}}\n",
        profile.model, kWorkers, name, plan.groups.size(), median(rates));
  }
}

void time_planner(const model::Profile& profile, const overlap::Network& network) {
  const overlap::IterationSetting setting = overlap::setting_of(profile, network, kWorkers);
  for (const char* name : kSchedules) {
    const auto schedule = overlap::make_schedule(name).value();
    std::vector<double> seconds;
    double iteration_s = 0;
    for (int round = 0; round < 9; ++round) {
      const double begin_s = now_s();
      const overlap::CutLine line = overlap::CutLine::make(profile, kBlockBytes).value();
      const overlap::Cuts cuts = overlap::best_cuts(line, setting, *schedule);
      seconds.push_back(now_s() - begin_s);
      iteration_s = overlap::simulate(*schedule, line.loads(cuts), setting).iteration_s;
    }
    fmt::print(
        "RESULT {{\"kind\": \"planner\", \"model\": \"{}\", \"tensors\": {}, \"network\": \"{}\", \"workers\": {}, \"schedule\": \"{}\", "
        "\"plan_s\": {:.6f}, \"iteration_s\": {:.6f}}}\n",
        profile.model, profile.tensors.size(), network.name, kWorkers, name, median(seconds), iteration_s);
  }
}

/// Up to twelve blocks of random sizes and times, every way to cut them tried in the simulator.
double gap_of(base::Rng& rng, const overlap::Schedule& schedule) {
  std::vector<overlap::GroupLoad> blocks(static_cast<std::size_t>(rng.uniform_int(2, 12)));
  overlap::IterationSetting setting;
  setting.workers = 8;
  setting.phase = {rng.uniform(0, 0.5), rng.uniform(0, 1)};
  for (overlap::GroupLoad& block : blocks) {
    block.bytes = rng.uniform(0, 2);
    block.need_s = setting.forward_s;
    setting.forward_s += rng.uniform();
  }
  for (std::size_t b = blocks.size(); b-- > 0;) {
    setting.backward_s += rng.uniform(0, 2);
    blocks[b].ready_s = setting.backward_s;
  }
  const overlap::CutLine line(blocks);
  double best_s = std::numeric_limits<double>::infinity();
  for (unsigned mask = 0; mask < 1U << (blocks.size() - 1); ++mask) {
    overlap::Cuts cuts = {0};
    for (std::size_t b = 1; b < blocks.size(); ++b) {
      if ((mask >> (b - 1) & 1U) != 0) {
        cuts.push_back(b);
      }
    }
    best_s = std::min(best_s, overlap::simulate(schedule, line.loads(cuts), setting).iteration_s);
  }
  return overlap::simulate(schedule, line.loads(overlap::best_cuts(line, setting, schedule)), setting).iteration_s / best_s - 1;
}

void measure_gaps() {
  for (const char* name : kSchedules) {
    const auto schedule = overlap::make_schedule(name).value();
    base::Rng rng(1, name);
    std::vector<double> gaps;
    for (int trial = 0; trial < 201; ++trial) {
      gaps.push_back(gap_of(rng, *schedule));
    }
    fmt::print("RESULT {{\"kind\": \"gap\", \"schedule\": \"{}\", \"cases\": {}, \"median_gap\": {:.3e}, \"largest_gap\": {:.3e}}}\n", name,
               gaps.size(), median(gaps), std::ranges::max(gaps));
  }
}

}  // namespace

int main() {
  const overlap::Network network = overlap::named_network("paper-10GbE").value();
  time_simulator(overlap::paper_profile("resnet50").value(), network);
  for (const char* name : {"bert-large", "densenet201"}) {  // 398 and 604 tensors
    for (const char* link : {"paper-10GbE", "paper-100GbIB"}) {
      time_planner(overlap::paper_profile(name).value(), overlap::named_network(link).value());
    }
  }
  measure_gaps();
}
