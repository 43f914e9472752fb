// SPDX-License-Identifier: Apache-2.0
#include "maypole/sim/paper_workload.h"

#include "maypole/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace maypole::sim {

namespace {

constexpr int kLastArrivalSlot = 150;
constexpr double kBytesPerGigabit = 1e9 / 8;

/// The paper's slots 1 to 150, drawn by the density's cumulated sum.
std::vector<int> drawn_arrivals(int count, base::Rng& rng) {
  std::vector<double> cumulated;
  double sum = 0;
  for (int t = 1; t <= kLastArrivalSlot; ++t) {
    sum += 1 + 0.6 * std::sin(2 * std::numbers::pi * t / 50);
    cumulated.push_back(sum);
  }
  std::vector<int> slots;
  for (int i = 0; i < count; ++i) {
    const auto found = std::ranges::upper_bound(cumulated, rng.uniform(0, sum));
    slots.push_back(static_cast<int>(std::min<std::ptrdiff_t>(found - cumulated.begin(), kLastArrivalSlot - 1)));
  }
  std::ranges::sort(slots);
  return slots;
}

}  // namespace

std::vector<model::Job> paper_workload(const PaperWorkloadOptions& options, const model::Cluster& cluster, base::Rng& rng) {
  const std::optional<model::ResourceId> gpu = cluster.find_resource("gpu");
  MAYPOLE_CHECK(gpu.has_value());
  const int count = options.jobs.value_or(options.contended ? 400 : 100);
  const BudgetReading reading = options.budget.value_or(options.contended ? BudgetReading::kIterations : BudgetReading::kWorkerSlots);
  const std::vector<int> slots = drawn_arrivals(count, rng);
  std::vector<model::Job> jobs;
  for (const int slot : slots) {
    model::Job job;
    job.id = fmt::format("job-{:03}", jobs.size() + 1);
    job.arrival_s = slot * options.slot_s;
    const auto most = static_cast<int>(rng.uniform_int(1, options.contended ? 20 : 5));
    const auto requested = static_cast<int>(rng.uniform_int(1, options.contended ? most : 10));
    const auto budget = static_cast<double>(rng.uniform_int(1000, 6000));
    const double zeta = static_cast<double>(rng.uniform_int(50, 500)) / (options.contended ? 20 : 1);
    job.max_workers = most;
    job.workers = std::min(requested, most);
    job.demand.assign(cluster.num_resources(), 0);
    job.demand[*gpu] = 1;
    job.edge_bandwidth = {rng.uniform(0.1, 5) * kBytesPerGigabit * base::kPayloadShare};
    job.budget = reading == BudgetReading::kIterations ? budget / zeta : budget;
    job.progress.kind = model::ProgressKind::kConstant;
    job.progress.zeta = zeta;
    job.weight = rng.uniform(1, 100);
    job.utility.kind = options.utility.value_or(model::UtilityKind::kSigmoid);
    // Drawn in any case, so that another utility keeps the other values.
    const double sensitivity = 1 - rng.uniform();
    const double expected = rng.uniform(300, 3000);
    if (job.utility.kind == model::UtilityKind::kSigmoid) {
      job.utility.sensitivity = sensitivity;
      job.utility.expected = expected;
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

model::Instance paper_instance(const PaperClusterOptions& cluster, const PaperWorkloadOptions& workload, std::uint64_t seed) {
  base::Rng cluster_rng(seed, "cluster");
  base::Rng workload_rng(seed, "workload");
  model::Cluster made = paper_cluster(cluster, cluster_rng);
  std::vector<model::Job> jobs = paper_workload(workload, made, workload_rng);
  return {std::move(made), std::move(jobs), workload.slot_s, kPaperSlots, seed};
}

}  // namespace maypole::sim
