// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/fusion_tuner.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/base/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <ranges>
#include <utility>

namespace maypole::pipeline {
namespace {

constexpr double kSegmentBytes = 128 << 10;
constexpr double kCloseToBound = 1.02;  // of max(computing, link): a sample that reaches it ends the search
constexpr double kClear = 0.95;         // a winner below this share of the first groups' time needs no second look
constexpr double kWorthIt = 0.99;       // a narrower winner must stay below this share when both are measured again
constexpr double kNeighbourhood = 4;    // refinements stay within this factor of the plan's sizes
constexpr std::size_t kWithoutGain = 2;
constexpr double kClearlyMore = 1.5;  // times as many groups tell what a group costs
constexpr double kStartRange = 30;    // a start-up is within this factor of what is presumed

constexpr std::size_t kHeader = 2;  // of an order: the next window, whether groups follow

bool is_search(const std::string& name) { return name != "auto" && name != "plan"; }

std::size_t num_groups(const Cuts& cuts) {
  std::size_t groups = 0;
  for (const std::vector<std::size_t>& arena : cuts) {
    groups += arena.size();
  }
  return groups;
}

bool drifted(double now, double then) { return now > FusionTuner::kDrift * then || then > FusionTuner::kDrift * now; }

}  // namespace

double FusionTuner::Trial::seconds() const {
  double sum = 0;
  for (const double window : windows) {
    sum += window;
  }
  return sum / static_cast<double>(windows.size());
}

absl::StatusOr<FusionTuner> FusionTuner::make(TunerOptions options) {
  FusionTuner tuner(std::move(options));
  MAYPOLE_ASSIGN_OR_RETURN(tuner.schedule_, overlap::make_schedule(tuner.options_.schedule));
  const overlap::FusionPlan& start = tuner.options_.start;
  const std::string& search = tuner.options_.search;
  std::size_t most_blocks = 0;
  for (const overlap::Arena& arena : start.arenas) {
    tuner.num_blocks_.push_back((arena.count + arena.block - 1) / arena.block);
    most_blocks = std::max(most_blocks, tuner.num_blocks_.back());
    tuner.memory_bytes_ += static_cast<double>(arena.count * base::size_of(arena.dtype));
  }
  const overlap::ObservedIteration none{std::vector<double>(start.tensors.size()), std::vector<double>(start.tensors.size())};
  for (const overlap::GroupLoad& load : overlap::observed_loads(start, none, tuner.options_.model.halved)) {
    tuner.bytes_ += load.bytes;
  }
  const Cuts cuts = overlap::cuts_of(start);
  tuner.report_.cuts = cuts;
  tuner.report_.tuned_for = tuner.options_.tuned_for;
  if (is_search(search)) {
    overlap::SearchOptions sizes;
    sizes.smallest = static_cast<double>(tuner.options_.model.block_bytes);
    sizes.largest = std::max(tuner.memory_bytes_, 2 * sizes.smallest);
    sizes.start = tuner.sizes_of(cuts);
    sizes.most_samples = kMostSamples;
    MAYPOLE_ASSIGN_OR_RETURN(tuner.search_, overlap::make_fusion_search(search, sizes));
    (void)tuner.search_->ask();  // the groups that the model has
  }
  if (most_blocks <= 1) {
    tuner.ended_ = true;
    tuner.report_.text = "the model is too small to be cut into groups";
    return tuner;
  }
  const bool tuned = tuner.options_.tuned_for.link_s_per_byte > 0;
  tuner.trials_.push_back({.what = tuned ? "cached" : "start", .cuts = cuts, .sizes = std::nullopt, .windows = {}, .seen = {}});
  if (tuned) {
    tuner.report_.text = fmt::format("{} groups, as an earlier run tuned them", num_groups(cuts));
    tuner.kind_ = Order::kWatch;
    tuner.window_.begin(kWarmUp, kWatched, false);
  } else {
    tuner.report_.text = fmt::format("{} groups; tuning did not end", num_groups(cuts));
    tuner.kind_ = is_search(search) ? Order::kMeasure : Order::kObserve;
    tuner.window_.begin(kWarmUp, kWindow, !is_search(search));
    tuner.iterations_ = 1 + kWarmUp + kWindow;
  }
  return tuner;
}

FusionTuner::FusionTuner(TunerOptions options)
    : options_(std::move(options)), window_(options_.start.tensors.size(), options_.num_ranks, options_.rank) {}

// --- orders ---

std::size_t FusionTuner::order_bytes() const {
  std::size_t blocks = 0;
  for (const std::size_t arena : num_blocks_) {
    blocks += arena;
  }
  return kHeader + blocks;
}

std::vector<std::byte> FusionTuner::order(Order next, const Cuts* cuts) const {
  std::vector<std::byte> order(order_bytes());
  order[0] = static_cast<std::byte>(next);
  order[1] = static_cast<std::byte>(cuts != nullptr);
  std::size_t first = kHeader;
  for (std::size_t a = 0; cuts != nullptr && a < num_blocks_.size(); first += num_blocks_[a], ++a) {
    for (const std::size_t begin : (*cuts)[a]) {
      order[first + begin] = std::byte{1};
    }
  }
  return order;
}

absl::StatusOr<std::optional<overlap::FusionPlan>> FusionTuner::follow(std::span<const std::byte> order) {
  MAYPOLE_CHECK_EQ(order.size(), order_bytes());
  begin_window(static_cast<Order>(order[0]));
  if (order[1] == std::byte{0}) {
    return std::nullopt;
  }
  Cuts cuts(num_blocks_.size());
  std::size_t first = kHeader;
  for (std::size_t a = 0; a < num_blocks_.size(); first += num_blocks_[a], ++a) {
    for (std::size_t block = 0; block < num_blocks_[a]; ++block) {
      if (order[first + block] != std::byte{0}) {
        cuts[a].push_back(block);
      }
    }
  }
  report_.cuts = cuts;
  MAYPOLE_ASSIGN_OR_RETURN(overlap::FusionPlan plan, overlap::plan_fusion_at(options_.model.tensors, options_.model.block_bytes, cuts));
  return plan;
}

void FusionTuner::begin_window(Order order) {
  kind_ = order;
  switch (order) {
    case Order::kEnd:
      ended_ = true;
      window_.begin(0, 1, false);
      break;
    case Order::kObserve:
      window_.begin(0, kWindow, true);
      iterations_ = kWindow;
      break;
    case Order::kMeasure:
      window_.begin(kSettling, kWindow, false);
      iterations_ += kSettling + kWindow;
      break;
    case Order::kWatch:
      window_.begin(kSettling, kWatched, false);
      break;
  }
}

// --- decisions, on rank 0 ---

TunedFor FusionTuner::tuned_for(const TuningWindow::Seen& seen) const {
  TunedFor found{seen.ranks.front().busy_s, 0};
  for (const TunedIteration& rank : seen.ranks) {
    // Ranks that come early wait for the others with groups in motion: the last one sees what the link needs.
    found.link_s_per_byte = std::min(found.link_s_per_byte, rank.busy_s);
    found.compute_s = std::max(found.compute_s, rank.iteration_s - rank.exposed_s);
  }
  found.link_s_per_byte /= 2 * bytes_;
  return found;
}

std::vector<std::byte> FusionTuner::decide(std::span<const double> sums) {
  const TuningWindow::Seen seen = window_.unpack(sums);
  const TunedFor found = tuned_for(seen);
  if (kind_ == Order::kWatch) {
    return watched(found);
  }
  double sum_s = 0;
  for (const TunedIteration& rank : seen.ranks) {
    sum_s += rank.iteration_s;
  }
  trials_[running_].windows.push_back(sum_s / static_cast<double>(seen.ranks.size()));
  trials_[running_].seen = found;
  if (kind_ == Order::kObserve) {
    observation_ = seen;
    return observed();
  }
  return measured();
}

/// Each trial had some groups and was busy for 2 (groups start + bytes beta). A line through at least two that differ clearly gives both;
/// else the start-up is presumed, and may explain half of what was seen at most.
overlap::PhaseCost FusionTuner::phase() const {
  double count = 0, groups = 0, busy = 0, groups_squared = 0, products = 0;
  double least_busy = std::numeric_limits<double>::infinity(), fewest = least_busy, most = 0;
  for (const Trial& trial : trials_) {
    if (trial.windows.empty()) {
      continue;
    }
    const double x = static_cast<double>(num_groups(trial.cuts));
    const double y = trial.seen.link_s_per_byte * bytes_;
    count += 1;
    groups += x;
    busy += y;
    groups_squared += x * x;
    products += x * y;
    least_busy = std::min(least_busy, y);
    fewest = std::min(fewest, x);
    most = std::max(most, x);
  }
  double start_s = options_.start_s;
  if (most >= kClearlyMore * fewest) {
    const double slope = (count * products - groups * busy) / (count * groups_squared - groups * groups);
    start_s = std::clamp(slope, options_.start_s / kStartRange, options_.start_s * kStartRange);
  }
  const double transfer_s = std::clamp((busy - groups * start_s) / count, least_busy / 2, least_busy);
  return {.start_s = start_s, .s_per_byte = transfer_s / bytes_};
}

absl::StatusOr<overlap::FusionPlan> FusionTuner::plan() const {
  const TunedFor& found = trials_.front().seen;
  const double num_ranks = static_cast<double>(observation_.ranks.size());
  overlap::IterationSetting setting;
  for (const TunedIteration& rank : observation_.ranks) {
    setting.backward_s += rank.backward_s / num_ranks;
    // wfbp and sync update within step(), which counts as computing there.
    setting.update_s += schedule_->traits().gradients_after_backward ? 0 : rank.update_s / num_ranks;
  }
  setting.backward_s = std::min(setting.backward_s, found.compute_s);
  setting.forward_s = found.compute_s - setting.backward_s;
  setting.phase = phase();
  setting.segment_s = kSegmentBytes * setting.phase.s_per_byte;
  setting.workers = static_cast<std::size_t>(options_.num_ranks);
  setting.update = options_.update;
  return overlap::plan_observed(options_.model, observation_.tensors, setting, *schedule_);
}

std::vector<std::byte> FusionTuner::observed() {
  const absl::StatusOr<overlap::FusionPlan> planned = plan();
  if (!planned.ok()) {
    note_ = "no plan: " + base::message(planned.status());
    return settle(0);
  }
  Trial trial{.what = "plan", .cuts = overlap::cuts_of(*planned), .sizes = std::nullopt, .windows = {}, .seen = {}};
  if (options_.search == "plan") {
    trials_.push_back(std::move(trial));
    return settle(1);
  }
  if (nothing_to_gain()) {
    return settle(0);
  }
  return trial.cuts == trials_.front().cuts ? refine() : try_next(std::move(trial));
}

std::vector<std::byte> FusionTuner::measured() {
  if (is_search(options_.search)) {
    return search_further();
  }
  if (challenger_) {
    if (running_ == 0) {
      return try_again(*challenger_);
    }
    return settle(trials_[*challenger_].seconds() < kWorthIt * trials_.front().seconds() ? *challenger_ : 0);
  }
  return nothing_to_gain() ? finish() : refine();
}

/// Plans again from what the trials showed; where that gives nothing new, the next sizes of a Bayesian search around the best trial.
/// Ends when it gains no more.
std::vector<std::byte> FusionTuner::refine() {
  const bool samples_left = refinements_ < kMostRefinements;
  if (running_ > 0) {
    const double before = std::ranges::min(trials_ | std::views::take(running_) | std::views::transform(&Trial::seconds));
    without_gain_ = trials_[running_].seconds() < kWorthIt * before ? 0 : without_gain_ + 1;
  }
  if (!search_ && samples_left) {
    const absl::StatusOr<overlap::FusionPlan> planned = plan();
    Trial trial{
        .what = "plan", .cuts = planned.ok() ? overlap::cuts_of(*planned) : Cuts(), .sizes = std::nullopt, .windows = {}, .seen = {}};
    if (planned.ok() && is_new(trial.cuts)) {
      ++refinements_;
      return try_next(std::move(trial));
    }
    begin_search();
  } else if (search_) {
    search_->tell(trials_[running_].seconds());
  }
  while (samples_left && without_gain_ < kWithoutGain) {
    const std::optional<overlap::FusionSizes> sizes = search_->ask();
    if (!sizes) {
      break;
    }
    const absl::StatusOr<overlap::FusionPlan> plan =
        overlap::plan_fusion(options_.model.tensors, sizes->options(options_.model.block_bytes));
    MAYPOLE_CHECK(plan.ok());
    Trial trial{.what = "search", .cuts = overlap::cuts_of(*plan), .sizes = sizes, .windows = {}, .seen = {}};
    if (is_new(trial.cuts)) {
      ++refinements_;
      return try_next(std::move(trial));
    }
    search_->tell(std::ranges::find(trials_, trial.cuts, &Trial::cuts)->seconds());  // other sizes, the same groups
  }
  return finish();
}

void FusionTuner::begin_search() {
  const overlap::FusionSizes center = sizes_of(trials_[best()].cuts);
  overlap::SearchOptions sizes;
  const double least = std::min(center.first_group, center.group);
  sizes.smallest = std::max(static_cast<double>(options_.model.block_bytes), least / kNeighbourhood);
  sizes.largest = std::max(2 * sizes.smallest, std::min(memory_bytes_, kNeighbourhood * std::max(center.first_group, center.group)));
  for (const Trial& trial : trials_) {
    sizes.known.push_back({sizes_of(trial.cuts), trial.seconds()});
  }
  sizes.most_samples = 2 * kMostRefinements;                      // some give the same groups
  search_ = overlap::make_fusion_search("bayes", sizes).value();  // a name that there is, sizes that ascend
}

bool FusionTuner::is_new(const Cuts& cuts) const { return std::ranges::find(trials_, cuts, &Trial::cuts) == trials_.end(); }

/// bayes, random, grid.
std::vector<std::byte> FusionTuner::search_further() {
  search_->tell(trials_[running_].windows.back());
  const std::optional<overlap::FusionSizes> sizes = search_->ask();
  const absl::StatusOr<overlap::FusionPlan> plan =
      overlap::plan_fusion(options_.model.tensors, sizes.value_or(search_->best()).options(options_.model.block_bytes));
  MAYPOLE_CHECK(plan.ok());
  Trial trial{.what = options_.search, .cuts = overlap::cuts_of(*plan), .sizes = sizes, .windows = {}, .seen = {}};
  if (sizes) {
    return try_next(std::move(trial));
  }
  const auto same = std::ranges::find(trials_, trial.cuts, &Trial::cuts);
  const std::size_t chosen = static_cast<std::size_t>(same - trials_.begin());
  if (same == trials_.end()) {  // even sizes that come near to the groups it began with
    trials_.push_back(std::move(trial));
  }
  return settle(chosen);
}

std::vector<std::byte> FusionTuner::try_next(Trial trial) {
  trials_.push_back(std::move(trial));
  return try_again(trials_.size() - 1);
}

std::vector<std::byte> FusionTuner::try_again(std::size_t trial) {
  running_ = trial;
  return order(Order::kMeasure, &trials_[trial].cuts);
}

std::vector<std::byte> FusionTuner::finish() {
  const std::size_t winner = best();
  const double share = trials_[winner].seconds() / trials_.front().seconds();
  if (winner == 0 || share < kClear || iterations_ + 2 * (kSettling + kWindow) > kMostIterations) {
    return settle(share < kWorthIt ? winner : 0);
  }
  challenger_ = winner;
  return try_again(0);
}

std::vector<std::byte> FusionTuner::settle(std::size_t trial) {
  ++report_.settled;
  report_.tried.clear();
  std::vector<std::string> tried;
  for (const Trial& each : trials_) {
    const double seconds = each.windows.empty() ? 0 : each.seconds();
    report_.tried.push_back({each.what, num_groups(each.cuts), seconds});
    tried.push_back(fmt::format("{} {} groups{}", each.what, num_groups(each.cuts),
                                each.windows.empty() ? std::string() : " " + base::format_seconds(seconds)));
  }
  const Trial& chosen = trials_[trial];
  report_.tuned_for = chosen.windows.empty() ? trials_.front().seen : chosen.seen;
  report_.cuts = chosen.cuts;
  report_.text = fmt::format("{}{}: {} groups ({}) after {} iterations; tried {}", note_.empty() ? "" : note_ + "; ", options_.search,
                             num_groups(chosen.cuts), chosen.what, iterations_, fmt::join(tried, ", "));
  const std::vector<std::byte> last = order(options_.search == "auto" ? Order::kWatch : Order::kEnd, &chosen.cuts);
  begin_anew(chosen.cuts);
  return last;
}

void FusionTuner::begin_anew(Cuts cuts) {
  trials_ = {{.what = "start", .cuts = std::move(cuts), .sizes = std::nullopt, .windows = {}, .seen = {}}};
  running_ = without_gain_ = refinements_ = drifted_ = 0;
  challenger_.reset();
  search_.reset();
  note_.clear();
}

std::vector<std::byte> FusionTuner::watched(const TunedFor& found) {
  const TunedFor& before = report_.tuned_for;
  const bool link = drifted(found.link_s_per_byte, before.link_s_per_byte);
  if (!link && !drifted(found.compute_s, before.compute_s)) {
    drifted_ = 0;
    return order(Order::kWatch, nullptr);
  }
  if (++drifted_ < patience_) {
    return order(Order::kWatch, nullptr);
  }
  patience_ *= 2;  // a machine that never comes to rest shall train, not tune
  begin_anew(report_.cuts);
  note_ = link ? fmt::format("again, since the link takes {:.2g} times as long", found.link_s_per_byte / before.link_s_per_byte)
               : fmt::format("again, since computing takes {:.2g} times as long", found.compute_s / before.compute_s);
  return order(Order::kObserve, nullptr);
}

bool FusionTuner::nothing_to_gain() const {
  double compute_s = trials_.front().seen.compute_s;
  for (const Trial& trial : trials_) {
    compute_s = trial.windows.empty() ? compute_s : std::min(compute_s, trial.seen.compute_s);
  }
  return trials_[best()].seconds() <= kCloseToBound * std::max(compute_s, 2 * bytes_ * phase().s_per_byte);
}

std::size_t FusionTuner::best() const {
  return static_cast<std::size_t>(std::ranges::min_element(trials_, {}, &Trial::seconds) - trials_.begin());
}

/// Even sizes that come near to these cuts.
overlap::FusionSizes FusionTuner::sizes_of(const Cuts& cuts) const {
  const double block = static_cast<double>(options_.model.block_bytes);
  const std::vector<std::size_t>& first_arena = cuts.front();
  const double first = static_cast<double>(first_arena.size() > 1 ? first_arena[1] : num_blocks_.front()) * block;
  const double rest = memory_bytes_ - std::min(first, memory_bytes_);
  const double others = static_cast<double>(num_groups(cuts)) - 1;
  return {.first_group = first, .group = others > 0 ? std::max(block, rest / others) : memory_bytes_, .split = block};
}

}  // namespace maypole::pipeline
