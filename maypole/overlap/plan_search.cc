// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/plan_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace maypole::overlap {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr double kResolution = 1e-7;   // of the result
constexpr double kCloseEnough = 1e-4;  // of the floor: where a search ends
constexpr std::size_t kTrials = 600;   // runs of the simulator: some 20 ms

/// Cuts within limits on x and y, and the values that they reach.
struct Reach {
  Cuts cuts;
  double x = 0;
  double y = 0;
};

class ReachSearch {
 public:
  /// `passes`: how often P counts in x (1: reduce-scatter, 2: all-reduce).
  ReachSearch(const CutLine& line, const IterationSetting& setting, double passes) : line_(line), setting_(setting), passes_(passes) {}

  /// The dynamic program: the furthest that 1, 2, ... groups reach within the limits; none where they do not reach the end.
  [[nodiscard]] std::optional<Reach> within(double x_limit, double y_limit) const {
    Reach reach;
    double start_s = 0;
    for (std::size_t begin = 0; begin < line_.num_blocks();) {
      start_s += setting_.phase.start_s;
      const GroupLoad& block = line_.block(begin);
      const double to_go_s = setting_.forward_s - block.need_s;
      const double room_s = std::min((x_limit - block.ready_s) / passes_, y_limit - to_go_s) - start_s;
      const double per_byte = setting_.phase.s_per_byte;
      const double bytes = per_byte > 0 ? room_s / per_byte : room_s >= 0 ? kUnlimited : -1;
      const std::size_t end = line_.furthest(begin, bytes * (1 + 1e-13));
      if (end <= begin) {
        return std::nullopt;
      }
      reach.cuts.push_back(begin);
      const double sent_s = start_s + per_byte * line_.bytes_before(end);
      reach.x = std::max(reach.x, block.ready_s + passes_ * sent_s);
      reach.y = std::max(reach.y, sent_s + to_go_s);
      begin = end;
    }
    return reach;
  }

  /// The least x, whatever y.
  [[nodiscard]] Reach least_x() const {
    return bisect(&Reach::x, [&](double limit) { return within(limit, kUnlimited); });
  }
  /// The least y for x within its limit, which must be reachable.
  [[nodiscard]] Reach least_y(double x_limit) const {
    const double rounded = x_limit * (1 + 1e-12);  // what was reached must be reached again
    return bisect(&Reach::y, [&](double limit) { return within(rounded, limit); });
  }

 private:
  template <typename Within>
  [[nodiscard]] Reach bisect(double Reach::* value, const Within& within_limit) const {
    Reach best = within_limit(kUnlimited).value();
    double low = 0;
    while (best.*value - low > kResolution * 1e-3 * best.*value) {
      const double middle = (low + best.*value) / 2;
      if (std::optional<Reach> reach = within_limit(middle)) {
        (*reach).*value = std::min((*reach).*value, middle);  // rounding must not stop the search
        best = *std::move(reach);
      } else {
        low = middle;
      }
    }
    return best;
  }

  const CutLine& line_;
  const IterationSetting& setting_;
  double passes_;
};

/// Branch and bound over x for the least max(B, x) + y.
class DearSearch {
 public:
  DearSearch(const CutLine& line, const IterationSetting& setting) : search_(line, setting, 1), setting_(setting) {}

  Cuts run() {
    const Reach fastest_reduce = search_.least_x();
    const Reach fastest_gather = search_.least_y(kUnlimited);
    const double low = std::max(setting_.backward_s, fastest_reduce.x);
    const Reach at_low = search_.least_y(low);
    consider(at_low);
    consider(fastest_gather);
    narrow(low, std::max(low, fastest_gather.x), fastest_gather.y);
    return best_.cuts;
  }

 private:
  [[nodiscard]] double total(const Reach& reach) const { return std::max(setting_.backward_s, reach.x) + reach.y; }

  void consider(const Reach& reach) {
    if (best_.cuts.empty() || total(reach) < total(best_)) {
      best_ = reach;
    }
  }

  /// Looks at x in (low, high); `least_y` is the least y at high, so nothing in between is below low + least_y.
  void narrow(double low, double high, double least_y) {
    const double worth_s = total(best_) * (1 - kResolution);
    if (low + least_y >= worth_s || setting_.forward_s + setting_.backward_s >= total(best_) || high - low <= kResolution * high) {
      return;
    }
    const double middle = (low + high) / 2;
    const Reach reach = search_.least_y(middle);
    consider(reach);
    // Between the x that was reached and the middle, y is no better than at the x that was reached.
    narrow(low, std::max(low, std::min(middle, reach.x)), reach.y);
    narrow(middle, high, least_y);
  }

  ReachSearch search_;
  const IterationSetting& setting_;
  Reach best_;
};

/// Climbs from one start after another, while trials are left.
class LocalSearch {
 public:
  LocalSearch(const CutLine& line, const IterationSetting& setting, const Schedule& schedule, std::size_t trials)
      : line_(line), setting_(setting), schedule_(schedule), trials_(trials) {
    // The first block is reduced when it is ready and gathered before its use, whatever the cuts.
    const GroupLoad& first = line.block(0);
    floor_s_ =
        std::max(iteration_bound(setting, line.bytes()), first.ready_s + 2 * setting.phase(first.bytes) + setting.forward_s - first.need_s);
  }

  Cuts run(std::span<const Cuts> starts) {
    std::vector<Tried> tried;
    for (const Cuts& cuts : starts) {
      tried.push_back({iteration_of(cuts), cuts});
    }
    std::ranges::stable_sort(tried, {}, &Tried::iteration_s);
    Tried best = tried.front();
    for (const Tried& start : tried) {
      here_ = start;
      climb();
      if (here_.iteration_s < best.iteration_s) {
        best = here_;
      }
      if (trials_ == 0 || best.iteration_s <= floor_s_ * (1 + kCloseEnough)) {
        break;
      }
    }
    return best.cuts;
  }

 private:
  struct Tried {
    double iteration_s = kUnlimited;
    Cuts cuts;
  };

  [[nodiscard]] double iteration_of(const Cuts& cuts) const { return simulate(schedule_, line_.loads(cuts), setting_).iteration_s; }

  /// Moves there where it is better.
  bool offer(Cuts cuts) {
    if (trials_ == 0) {
      return false;
    }
    --trials_;
    const double iteration_s = iteration_of(cuts);
    if (iteration_s >= here_.iteration_s * (1 - 1e-9)) {
      return false;
    }
    here_ = {iteration_s, std::move(cuts)};
    return true;
  }

  void climb() {
    std::size_t step = std::max<std::size_t>(1, line_.num_blocks() / 16);
    while (trials_ > 0 && step > 0 && here_.iteration_s > floor_s_ * (1 + kCloseEnough)) {
      if (!sweep(step)) {
        step /= 2;
      }
    }
  }

  /// Tries every move once; true if one was taken.
  bool sweep(std::size_t step) {
    bool better = false;
    for (std::size_t k = 0; k < here_.cuts.size() && trials_ > 0; ++k) {  // here_ changes
      better |= k > 0 && (move(k, step, true) || move(k, step, false) || remove(k));
      better |= k < here_.cuts.size() && add(k);
    }
    return better;
  }

  [[nodiscard]] std::size_t end_of(std::size_t k) const { return k + 1 < here_.cuts.size() ? here_.cuts[k + 1] : line_.num_blocks(); }

  bool move(std::size_t k, std::size_t step, bool later) {
    const std::size_t from = here_.cuts[k];
    const std::size_t to = later ? from + step : from - std::min(step, from);
    if (to <= here_.cuts[k - 1] || to >= end_of(k)) {
      return false;
    }
    Cuts cuts = here_.cuts;
    cuts[k] = to;
    return offer(std::move(cuts));
  }

  bool remove(std::size_t k) {
    Cuts cuts = here_.cuts;
    cuts.erase(cuts.begin() + static_cast<std::ptrdiff_t>(k));
    return offer(std::move(cuts));
  }

  /// Cuts group k in the middle, and near its begin, where the group that forward needs first is best small.
  bool add(std::size_t k) {
    const std::size_t middle = (here_.cuts[k] + end_of(k)) / 2;
    bool better = false;
    for (const std::size_t at : {middle, here_.cuts[k] + 1}) {
      if (at > here_.cuts[k] && at < end_of(k)) {
        Cuts cuts = here_.cuts;
        cuts.insert(cuts.begin() + static_cast<std::ptrdiff_t>(k) + 1, at);
        better |= offer(std::move(cuts));
      }
    }
    return better;
  }

  const CutLine& line_;
  const IterationSetting& setting_;
  const Schedule& schedule_;
  std::size_t trials_;
  double floor_s_ = 0;  // no cuts are below it
  Tried here_;
};

/// Plans of few and of many groups, with a small first group and without.
std::vector<Cuts> even_starts(const CutLine& line) {
  std::vector<Cuts> starts;
  for (double groups = 1; groups <= 256 && groups <= static_cast<double>(line.num_blocks()); groups *= 2) {
    const double bytes = line.bytes() / groups;
    starts.push_back(line.even_cuts(bytes, bytes));
    starts.push_back(line.even_cuts(bytes / 8, bytes));
  }
  return starts;
}

}  // namespace

Cuts best_wfbp_cuts(const CutLine& line, const IterationSetting& setting) {
  return line.num_blocks() == 0 ? Cuts{} : ReachSearch(line, setting, 2).least_x().cuts;
}

Cuts best_dear_cuts(const CutLine& line, const IterationSetting& setting) {
  return line.num_blocks() == 0 ? Cuts{} : DearSearch(line, setting).run();
}

Cuts improve_cuts(const CutLine& line, const IterationSetting& setting, const Schedule& schedule, std::span<const Cuts> starts,
                  std::size_t trials) {
  return LocalSearch(line, setting, schedule, trials).run(starts);
}

Cuts best_cuts(const CutLine& line, const IterationSetting& setting, const Schedule& schedule) {
  if (line.num_blocks() == 0) {
    return {};
  }
  const bool exact = setting.contention_s_per_byte == 0 && setting.update_s == 0;
  if (exact && schedule.name() == "wfbp") {
    return best_wfbp_cuts(line, setting);
  }
  if (exact && schedule.name() == "dear") {
    return best_dear_cuts(line, setting);
  }
  if (schedule.name() == "sync") {  // one message: nothing overlaps, and every group costs a start-up
    return {0};
  }
  std::vector<Cuts> starts = even_starts(line);
  starts.push_back(best_wfbp_cuts(line, setting));
  starts.push_back(best_dear_cuts(line, setting));
  return improve_cuts(line, setting, schedule, starts, kTrials);
}

}  // namespace maypole::overlap
