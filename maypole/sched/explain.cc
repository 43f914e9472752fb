// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/explain.h"

#include "maypole/base/units.h"
#include "maypole/sched/dominant_share.h"
#include "maypole/sched/remaining_time.h"
#include "maypole/sched/ring_resize.h"
#include "maypole/sched/start_estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

namespace maypole::sched {

namespace {

using model::Embedding;
using model::RackId;
using model::ServerId;

bool is_rigid(const std::string& policy) { return policy == "fifo" || policy == "srtf" || policy == "las"; }

/// "s0 x2, s3 x4"
std::string ring_text(const model::Cluster& cluster, const Embedding& ring) {
  std::vector<std::string> parts;
  for (std::size_t k = 0; k < ring.ring.size();) {
    std::size_t end = k;
    while (end < ring.ring.size() && ring.ring[end] == ring.ring[k]) {
      ++end;
    }
    parts.push_back(fmt::format("{} x{}", cluster.server(ring.ring[k]).id, end - k));
    k = end;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

class Explainer {
 public:
  Explainer(const SlotProblem& problem, const Decision& decision, std::string policy)
      : problem_(problem), policy_(std::move(policy)), placer_(*problem.cluster, RingStyle::kTopology), rings_(problem.jobs.size()) {
    std::unordered_map<std::int32_t, std::size_t> position;
    for (std::size_t i = 0; i < problem.jobs.size(); ++i) {
      position.emplace(problem.jobs[i].id.value(), i);
    }
    for (const Placement& placement : decision.placements) {
      const std::size_t i = position.at(placement.job.value());
      rings_[i] = &placement.embedding;
      placer_.take(*problem.jobs[i].job, placement.embedding);
    }
  }

  Explanation run(const Decision& decision) {
    Explanation result;
    result.slot = problem_.slot;
    result.policy = policy_;
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      JobExplanation& job = result.jobs.emplace_back();
      job.job = problem_.jobs[i].id;
      job.id = problem_.jobs[i].job->id;
      if (rings_[i] != nullptr) {
        explain_running(i, job);
      } else {
        explain_waiting(i, job);
      }
    }
    set_order(decision, result.jobs);
    std::array<int, kNumReasons> counts{};
    for (const JobExplanation& job : result.jobs) {
      ++counts[static_cast<std::size_t>(job.reason)];
    }
    for (std::size_t k = 0; k < counts.size(); ++k) {
      if (counts[k] > 0) {
        result.counts.emplace_back(static_cast<Reason>(k), counts[k]);
      }
    }
    return result;
  }

 private:
  [[nodiscard]] int wanted(std::size_t i) const {
    const ActiveJob& job = problem_.jobs[i];
    const int workers = is_rigid(policy_) ? job.job->workers : job.job->min_workers;
    return workers <= worker_limit(job) ? workers : 0;
  }

  [[nodiscard]] double gain(const ActiveJob& job, const model::RingShape& shape) const {
    return utility_gain(job, slot_progress(job, shape, false, problem_.slot_s), problem_.start_s());
  }

  void explain_running(std::size_t i, JobExplanation& out) {
    const ActiveJob& job = problem_.jobs[i];
    const Embedding& ring = *rings_[i];
    out.workers = ring.workers();
    out.where = where_text(job, ring);
    look_for_more(i, out);
    const OneMore& more = out.one_more;
    if (out.workers >= job.job->max_workers) {
      out.reason = Reason::kAtMaximum;
      out.why = fmt::format("It has its max_workers, {}.", job.job->max_workers);
    } else if (out.workers >= worker_limit(job)) {
      out.reason = Reason::kAtBudget;
      out.why = fmt::format("{:g} of its budget of {:g} worker-slots are used, which leaves it {} workers.", job.worker_slots,
                            job.job->budget.value_or(0), out.workers);
    } else if (is_rigid(policy_)) {
      out.reason = Reason::kAtRequest;
      out.why = fmt::format("{} gives a job its {} workers or none.", policy_, job.job->workers);
    } else if (more.blocker.kind == BlockerKind::kBandwidth) {
      out.reason = Reason::kNoBandwidthForMore;
    } else if (more.blocker.kind == BlockerKind::kRacks) {
      out.reason = Reason::kNoRackForMore;
    } else if (!more.fits) {
      out.reason = Reason::kNoRoomForMore;
    } else {
      out.reason = more.utility > 0 ? Reason::kMoreNotChosen : Reason::kMoreBringsNothing;
    }
    if (out.why.empty()) {
      out.why = fmt::format("{} gives it {} of at most {} workers.", policy_, out.workers, worker_limit(job));
    }
    if (!more.allowed) {
      out.why_not_more = out.why;
    } else if (!more.fits) {
      out.why_not_more = fmt::format("One more worker finds no place: {}.", text_of(more.blocker));
    } else if (!(more.utility > 0)) {
      out.why_not_more = "One more worker would fit and bring nothing in this slot.";
    } else {
      out.why_not_more = fmt::format("One more worker would fit and bring {:.6g} of utility in this slot; {}.", more.utility,
                                     is_rigid(policy_) ? policy_ + " does not ask for that" : not_chosen_text(job));
    }
  }

  [[nodiscard]] std::string not_chosen_text(const ActiveJob& job) const {
    return job.job->progress.resize_s > 0 ? fmt::format("a change of its ring costs {} without progress, or {} weighs otherwise",
                                                        base::format_seconds(job.job->progress.resize_s), policy_)
                                          : policy_ + " weighs otherwise";
  }

  void look_for_more(std::size_t i, JobExplanation& out) {
    const ActiveJob& job = problem_.jobs[i];
    const Embedding& ring = *rings_[i];
    model::RingShape shape = model::shape_of(ring);
    const double now = gain(job, shape);
    ++shape.workers;
    out.one_more.allowed = ring.workers() < worker_limit(job);
    if (out.one_more.allowed) {
      placer_.give_back(*job.job, ring);
      if (const std::optional<Embedding> wider = one_more(placer_, job, ring)) {
        out.one_more.fits = true;
        shape = model::shape_of(*wider);
      } else {
        out.one_more.blocker = blocker_of_one_more(placer_, job, ring);
      }
      placer_.take(*job.job, ring);
    }
    out.one_more.utility = gain(job, shape) - now;  // where it does not fit: on the servers that it has
  }

  [[nodiscard]] std::string where_text(const ActiveJob& job, const Embedding& ring) const {
    const model::Cluster& cluster = *problem_.cluster;
    std::set<RackId> racks;
    for (const ServerId server : ring.ring) {
      racks.insert(cluster.server(server).rack);
    }
    const int servers = model::num_servers(ring.ring);
    std::string text =
        fmt::format("{}: {} server{}, {} rack{}, {} crossings between racks", ring_text(cluster, ring), servers, servers == 1 ? "" : "s",
                    racks.size(), racks.size() == 1 ? "" : "s", model::rack_crossings(cluster, ring.ring));
    if (!job.running()) {
      return text + "; a new ring, where there was room for it.";
    }
    if (job.current->ring == ring.ring) {
      return text + "; the ring of the last slot, which costs nothing to keep.";
    }
    return fmt::format("{}; changed from {}.", text, ring_text(cluster, *job.current));
  }

  void explain_waiting(std::size_t i, JobExplanation& out) {
    const ActiveJob& job = problem_.jobs[i];
    const int workers = wanted(i);
    out.one_more.allowed = worker_limit(job) > 0;
    if (workers == 0) {
      out.reason = Reason::kWaitsForBudget;
      const int asked = is_rigid(policy_) ? job.job->workers : job.job->min_workers;
      out.why = fmt::format("It waits: {:g} worker-slots are left of its budget, {} gives it {} workers or none.",
                            std::max(0.0, job.job->budget.value_or(0) - job.worker_slots), policy_, asked);
      out.help = fmt::format("a budget of at least {:g} worker-slots", job.worker_slots + asked);
      return;
    }
    out.one_more.utility = gain(job, {workers, 1, job.job->edge_bandwidth});
    out.blocker = blocker_of_ring(placer_, job, workers);
    out.one_more.blocker = out.blocker;
    out.one_more.fits = out.blocker.kind == BlockerKind::kNone;
    switch (out.blocker.kind) {
      case BlockerKind::kNone:
        out.reason = Reason::kWaitsForTurn;
        break;
      case BlockerKind::kAmount:
        out.reason = Reason::kWaitsForAmount;
        break;
      case BlockerKind::kShape:
        out.reason = Reason::kWaitsForShape;
        break;
      case BlockerKind::kBandwidth:
        out.reason = Reason::kWaitsForBandwidth;
        break;
      case BlockerKind::kRacks:
        out.reason = Reason::kWaitsForRacks;
        break;
    }
    if (out.reason == Reason::kWaitsForTurn) {
      out.why = fmt::format("It waits although {} workers would fit: {} gives it none in this slot.", workers, policy_);
    } else {
      out.why = fmt::format("It waits for {} workers: {}.", workers, text_of(out.blocker));
    }
    out.why_not_more = out.why;
    out.help = help_text(i, workers, out.blocker);
  }

  [[nodiscard]] std::string help_text(std::size_t i, int workers, const Blocker& blocker) {
    const ActiveJob& job = problem_.jobs[i];
    std::vector<std::string> ways;
    if (blocker.kind == BlockerKind::kAmount) {
      ways.push_back(fmt::format("{:g} more {}", blocker.needed - blocker.free, blocker.name));
    } else if (blocker.kind == BlockerKind::kShape) {
      ways.push_back(fmt::format("{:g} more {} free on {}", blocker.needed - blocker.free, blocker.name, blocker.where));
    } else if (blocker.kind == BlockerKind::kBandwidth) {
      ways.push_back("a smaller edge_bandwidth");
    } else if (blocker.kind == BlockerKind::kRacks) {
      ways.push_back(job.job->max_racks_s > 0 ? fmt::format("{} more of waiting, after which any number of racks will do",
                                                            base::format_seconds(job.job->max_racks_s - job.waiting_s))
                                              : std::string("leave to span more racks"));
    }
    int fits = 0;  // the most workers that would start now
    for (int low = 1, high = workers - 1; low <= high;) {
      const int middle = (low + high) / 2;
      if (placer_.place(job, middle)) {
        fits = middle;
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    if (fits > 0) {
      ways.push_back(fmt::format("to ask for at most {} workers, which would fit now", fits));
    }
    if (blocker.kind == BlockerKind::kNone) {
      ways.push_back("a larger weight, or the end of a job before it in the order");
    } else {
      ways.push_back("the end of a running job");
    }
    return fmt::format("{}", fmt::join(ways, "; or "));
  }

  /// The order in which waiting jobs come, as far as the policy's name tells: lower first.
  [[nodiscard]] double rank(std::size_t i, const RemainingTime& remaining) const {
    const ActiveJob& job = problem_.jobs[i];
    if (policy_ == "fifo" || policy_ == "drf") {
      return 0;  // in order of arrival
    }
    if (policy_ == "las") {
      return job.attained_s;
    }
    if (policy_ == "srtf" || policy_ == "optimus") {
      return remaining.slots(job, policy_ == "srtf" ? job.job->workers : job.job->min_workers);
    }
    const int workers = job.job->min_workers;
    return -gain(job, {workers, 1, job.job->edge_bandwidth}) / (workers * dominant_share(*job.job, *problem_.cluster));
  }

  void set_order(const Decision& decision, std::vector<JobExplanation>& jobs) {
    const RemainingTime remaining(problem_);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (rings_[i] == nullptr) {
        order.emplace_back(rank(i, remaining), i);
      }
    }
    std::ranges::sort(order);
    std::vector<WaitingJob> waiting;
    for (const auto& [key, i] : order) {
      jobs[i].place = static_cast<int>(waiting.size()) + 1;
      waiting.push_back({i, wanted(i)});
    }
    const std::vector<std::optional<std::int64_t>> starts = estimated_starts(problem_, decision, waiting);
    for (std::size_t k = 0; k < waiting.size(); ++k) {
      if (starts[k]) {
        jobs[waiting[k].position].start_s = static_cast<double>(*starts[k]) * problem_.slot_s;
      }
    }
  }

  const SlotProblem& problem_;
  std::string policy_;
  RingPlacer placer_;
  std::vector<const Embedding*> rings_;  // [position in problem.jobs]
};

}  // namespace

std::string_view name_of(Reason reason) {
  switch (reason) {
    case Reason::kAtMaximum:
      return "at_maximum";
    case Reason::kAtBudget:
      return "at_budget";
    case Reason::kAtRequest:
      return "at_request";
    case Reason::kNoRoomForMore:
      return "no_room_for_more";
    case Reason::kNoBandwidthForMore:
      return "no_bandwidth_for_more";
    case Reason::kNoRackForMore:
      return "no_rack_for_more";
    case Reason::kMoreBringsNothing:
      return "more_brings_nothing";
    case Reason::kMoreNotChosen:
      return "more_not_chosen";
    case Reason::kWaitsForAmount:
      return "waits_for_amount";
    case Reason::kWaitsForShape:
      return "waits_for_shape";
    case Reason::kWaitsForBandwidth:
      return "waits_for_bandwidth";
    case Reason::kWaitsForRacks:
      return "waits_for_racks";
    case Reason::kWaitsForBudget:
      return "waits_for_budget";
    case Reason::kWaitsForTurn:
      return "waits_for_turn";
  }
  return "?";
}

bool waits(Reason reason) { return reason >= Reason::kWaitsForAmount; }

Explanation explain(const SlotProblem& problem, const Decision& decision, const std::string& policy) {
  return Explainer(problem, decision, policy).run(decision);
}

std::string text_of(const JobExplanation& job) {
  if (!waits(job.reason)) {
    std::string text = fmt::format("{} runs with {} workers. {}\n  where: {}\n", job.id, job.workers, job.why, job.where);
    return job.why_not_more == job.why ? text : fmt::format("{}  one more: {}\n", text, job.why_not_more);
  }
  const std::string start =
      job.start_s ? fmt::format("at {} s, if nothing else arrives and nobody gives way before", *job.start_s) : "not known";
  return fmt::format("{} waits. {}\n  place in the order: {}\n  estimated start: {}\n  what would help: {}\n", job.id, job.why, job.place,
                     start, job.help);
}

std::string summary_of(const Explanation& explanation) {
  std::vector<std::string> parts;
  for (const auto& [reason, count] : explanation.counts) {
    parts.push_back(fmt::format("{} {}", count, name_of(reason)));
  }
  return fmt::format("{} jobs: {}", explanation.jobs.size(), fmt::join(parts, ", "));
}

}  // namespace maypole::sched
