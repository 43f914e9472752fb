// SPDX-License-Identifier: Apache-2.0

// Single slots for `make bench-scheduling`: random problems, one JSON object a line.
//
//   bench_slots tight COUNT SEED POLICY         small problems with tight links; the policy and `exact` from the same state
//   bench_slots tiny COUNT SEED POLICY          whole runs of 4 slots; the policy and the optimum that knows all arrivals
//   bench_slots large SERVERS JOBS KIND SEED    KIND slack or tight links; 90 % of the jobs run already; `gadget`
//   bench_slots hosts GPUS JOBS SEED FILE       a topology file with GPUS a server, slack links; `gadget`

#include "maypole/base/check.h"
#include "maypole/base/clock.h"
#include "maypole/base/rng.h"
#include "maypole/formats/cluster_file.h"
#include "maypole/sched/policies/offline.h"
#include "maypole/sched/policy.h"
#include "maypole/sched/schedule_checker.h"
#include "maypole/sim/metrics.h"
#include "maypole/sim/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace maypole;

// Where `exact` is cut here, its bound stands in for the optimum.
constexpr std::int64_t kExactNodes = 300;
constexpr double kGigabit = 0.95e9 / 8;

base::Bandwidth gbps(double rate) { return {rate * kGigabit}; }

/// Racks of `per_rack` servers under one core. `gpus` and `link` are asked once a server, `uplink` once a rack, with the sum of the rates
/// below it.
template <typename Gpus, typename LinkRate, typename UplinkRate>
model::Cluster tree(int servers, int per_rack, std::vector<std::string> resources, Gpus gpus, LinkRate link, UplinkRate uplink) {
  model::ClusterParts parts;
  parts.resources = std::move(resources);
  const int racks = (servers + per_rack - 1) / per_rack;
  std::vector<double> below(static_cast<std::size_t>(racks), 0);
  const auto join = [&](const std::string& name, int from, int to, base::Bandwidth rate) {
    parts.links.push_back({name + "^", model::NodeId(from), model::NodeId(to), rate});
    parts.links.push_back({name + "v", model::NodeId(to), model::NodeId(from), rate});
  };
  for (int s = 0; s < servers; ++s) {
    model::Server server;
    server.id = fmt::format("s{}", s);
    server.rack = model::RackId(s / per_rack);
    const double count = gpus();
    server.capacity.assign(parts.resources.size(), count);
    for (std::size_t r = 1; r < parts.resources.size(); ++r) {
      server.capacity[model::ResourceId::from_index(r)] = count * (r == 1 ? 8 : 64);  // cores, GB
    }
    parts.servers.push_back(std::move(server));
    const double rate = link();
    below[static_cast<std::size_t>(s / per_rack)] += rate;
    join(fmt::format("s{}", s), s, servers + s / per_rack, gbps(rate));
  }
  for (int r = 0; r < racks; ++r) {
    parts.racks.push_back(fmt::format("r{}", r));
    parts.switches.push_back({parts.racks.back(), model::RackId(r)});
    join(parts.racks.back(), servers + r, servers + racks, gbps(uplink(below[static_cast<std::size_t>(r)])));
  }
  parts.switches.push_back({"core", model::RackId()});
  auto cluster = model::Cluster::make(std::move(parts));
  MAYPOLE_CHECK(cluster.ok());
  return std::move(cluster).value();
}

/// A slot's question with all that it borrows.
struct Question {
  model::Cluster cluster;
  std::deque<model::Job> jobs;
  std::deque<model::Embedding> rings;
  sched::SlotProblem problem;

  explicit Question(model::Cluster made) : cluster(std::move(made)) { problem.cluster = &cluster; }
  void add(model::Job job, double progress) {
    job.id = fmt::format("j{}", jobs.size());
    const auto id = model::JobId::from_index(jobs.size());
    jobs.push_back(std::move(job));
    sched::ActiveJob active;
    active.id = id;
    active.job = &jobs.back();
    active.progress = progress;
    active.remaining_slots = 100;
    problem.jobs.push_back(active);
  }
};

struct Answer {
  sched::Decision decision;
  double seconds = 0;
  std::size_t violations = 0;
};

Answer ask(const std::string& name, const Question& question) {
  sched::PolicyOptions options;
  options.exact_nodes = kExactNodes;
  auto policy = sched::make_policy(name, options);
  MAYPOLE_CHECK(policy.ok());
  const base::SteadyClock clock;
  base::Rng rng(1, "policy");
  const base::TimePoint before = clock.now();
  Answer answer;
  answer.decision = (*policy)->decide(question.problem, rng);
  answer.seconds = base::to_seconds(clock.now() - before);
  answer.violations = sched::check_decision(question.problem, answer.decision).size();
  return answer;
}

model::Job random_job(base::Rng& rng, const model::Cluster& cluster, int most, model::UtilityKind kind) {
  model::Job job;
  job.max_workers = static_cast<int>(rng.uniform_int(1, most));
  job.workers = static_cast<int>(rng.uniform_int(1, job.max_workers));
  job.demand.assign(cluster.num_resources(), 1);
  for (std::size_t r = 1; r < cluster.num_resources(); ++r) {
    job.demand[model::ResourceId::from_index(r)] = rng.uniform(1, r == 1 ? 8 : 64);
  }
  job.progress.zeta = rng.uniform(50, 500);
  job.weight = rng.uniform(1, 100);
  job.utility.kind = kind;
  return job;
}

void tight(int count, std::uint64_t seed, const std::string& policy) {
  for (int k = 0; k < count; ++k) {
    base::Rng rng(seed + static_cast<std::uint64_t>(k), "tight");
    const auto servers = static_cast<int>(rng.uniform_int(12, 16));
    constexpr int kGpus[] = {1, 2, 4, 8};
    Question question(tree(
        servers, 6, {"gpu"}, [&] { return kGpus[rng.uniform_int(0, 3)]; }, [&] { return rng.uniform(0.2, 5); },
        [&](double) { return rng.uniform(4, 160); }));
    const auto jobs = static_cast<int>(rng.uniform_int(10, 12));
    const auto kind = k % 2 == 0 ? model::UtilityKind::kSqrt : model::UtilityKind::kLog;
    for (int j = 0; j < jobs; ++j) {
      model::Job job = random_job(rng, question.cluster, 16, kind);
      job.edge_bandwidth = gbps(rng.uniform(0.1, 5));
      question.add(std::move(job), rng.uniform(0, 5000));
    }
    const Answer ours = ask(policy, question);
    const Answer best = ask("exact", question);
    fmt::print(
        "{{\"seed\": {}, \"servers\": {}, \"jobs\": {}, \"utility\": {}, \"exact\": {}, \"exact_bound\": {}, \"exact_limited\": {}, "
        "\"seconds\": {}, \"exact_seconds\": {}, \"bound\": {}, \"violations\": {}}}\n",
        seed + static_cast<std::uint64_t>(k), servers, jobs, ours.decision.utility, best.decision.utility,
        best.decision.bound.value_or(best.decision.utility), best.decision.limited, ours.seconds, best.seconds,
        ours.decision.bound.value_or(-1), ours.violations + best.violations);
    std::fflush(stdout);
  }
}

void tiny(int count, std::uint64_t seed, const std::string& policy) {
  for (int k = 0; k < count; ++k) {
    base::Rng rng(seed + static_cast<std::uint64_t>(k), "tiny");
    model::Cluster cluster = tree(
        3, 2, {"gpu"}, [&] { return static_cast<double>(rng.uniform_int(1, 2)); }, [&] { return rng.uniform(0.5, 4); },
        [](double below) { return below / 1.5; });
    const auto kind = k % 2 == 0 ? model::UtilityKind::kSqrt : model::UtilityKind::kLog;
    std::vector<model::Job> jobs;
    for (int j = 0; j < 3; ++j) {
      model::Job job = random_job(rng, cluster, 3, kind);
      job.id = fmt::format("j{}", j);
      job.edge_bandwidth = gbps(rng.uniform(0.1, 3));
      job.arrival_s = 60.0 * static_cast<double>(rng.uniform_int(0, 2));
      jobs.push_back(std::move(job));
    }
    std::ranges::stable_sort(jobs, {}, &model::Job::arrival_s);
    const int largest = std::ranges::max(jobs, {}, &model::Job::max_workers).max_workers;
    const model::Instance instance{std::move(cluster), std::move(jobs), 60, 4, seed + static_cast<std::uint64_t>(k)};
    const auto best = sched::solve_offline(instance);
    const base::SteadyClock clock;
    auto made = sched::make_policy(policy, {});
    MAYPOLE_CHECK(made.ok() && best.ok());
    const auto run = sim::simulate(instance, std::move(made).value(), {}, clock);
    MAYPOLE_CHECK(run.ok());
    fmt::print("{{\"seed\": {}, \"utility\": {}, \"offline\": {}, \"proven\": {}, \"violations\": {}}}\n", instance.seed,
               sim::metrics_of(*run, instance).total_utility, best->utility, 1.0 / (3 * largest + 1), run->violations);
  }
}

/// Asks twice: from nothing, then with 90 % of the jobs on the rings that they got, and prints the second.
void steady(Question& question, base::Rng& rng) {
  const sched::Decision first = ask("gadget", question).decision;
  for (const sched::Placement& placement : first.placements) {
    if (rng.uniform() < 0.9) {
      question.rings.push_back(placement.embedding);
      question.problem.jobs[placement.job.index()].current = &question.rings.back();
    }
  }
  for (sched::ActiveJob& job : question.problem.jobs) {
    job.progress += job.running() ? job.job->progress.zeta * job.current->workers() : 0;
  }
  question.problem.slot = 1;
  std::vector<double> seconds;
  Answer answer;
  for (int repeated = 0; repeated < 3; ++repeated) {
    answer = ask("gadget", question);
    seconds.push_back(answer.seconds);
  }
  std::ranges::sort(seconds);
  const auto value = [](std::optional<double> known) { return known ? fmt::format("{}", *known) : std::string("null"); };
  fmt::print(
      "{{\"servers\": {}, \"jobs\": {}, \"running\": {}, \"embedded\": {}, \"seconds\": {}, \"seconds_max\": {}, \"utility\": {}, "
      "\"bound\": {}, \"bound_lp\": {}, \"gap\": {}, \"limited\": {}, \"violations\": {}}}\n",
      question.cluster.num_servers(), question.jobs.size(), question.rings.size(), answer.decision.placements.size(), seconds[1],
      seconds[2], answer.decision.utility, value(answer.decision.bound), value(answer.decision.bound_lp), value(answer.decision.gap),
      answer.decision.limited, answer.violations);
}

void large(int servers, int jobs, bool binding, std::uint64_t seed) {
  base::Rng rng(seed, "large");
  constexpr int kGpus[] = {1, 2, 4, 8};
  Question question(tree(
      servers, 40, {"gpu", "cpu", "memory"}, [&] { return kGpus[rng.uniform_int(0, 3)]; }, [&] { return binding ? 10.0 : 1000.0; },
      [&](double below) { return binding ? below / 8 : below; }));
  for (int j = 0; j < jobs; ++j) {
    model::Job job = random_job(rng, question.cluster, 16, model::UtilityKind::kSqrt);
    job.edge_bandwidth = gbps(rng.uniform(5, 12));
    job.progress.resize_s = 10;
    question.add(std::move(job), rng.uniform(0, 50000));
  }
  steady(question, rng);
}

void hosts(double gpus, int jobs, std::uint64_t seed, const std::string& file) {
  base::Rng rng(seed, "hosts");
  formats::ClusterDefaults defaults;
  defaults.gpus_per_server = gpus;
  defaults.server_bandwidth = gbps(400);
  defaults.uplink = gbps(1600);
  auto cluster = formats::read_cluster(file, defaults);
  if (!cluster.ok()) {
    fmt::print(stderr, "{}\n", std::string(cluster.status().message()));
    std::exit(1);
  }
  Question question(std::move(cluster).value());
  for (int j = 0; j < jobs; ++j) {
    model::Job job = random_job(rng, question.cluster, 64, model::UtilityKind::kSqrt);
    job.edge_bandwidth = gbps(rng.uniform(5, 50));
    job.progress.resize_s = 10;
    question.add(std::move(job), rng.uniform(0, 50000));
  }
  steady(question, rng);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 4 && words[0] == "tight") {
    tight(std::stoi(words[1]), std::stoull(words[2]), words[3]);
  } else if (words.size() == 4 && words[0] == "tiny") {
    tiny(std::stoi(words[1]), std::stoull(words[2]), words[3]);
  } else if (words.size() == 5 && words[0] == "large" && (words[3] == "slack" || words[3] == "tight")) {
    large(std::stoi(words[1]), std::stoi(words[2]), words[3] == "tight", std::stoull(words[4]));
  } else if (words.size() == 5 && words[0] == "hosts") {
    hosts(std::stod(words[1]), std::stoi(words[2]), std::stoull(words[3]), words[4]);
  } else {
    fmt::print(stderr, "usage: see the head of bench_slots.cc\n");
    return 2;
  }
  return 0;
}
