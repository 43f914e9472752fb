// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/exact_search.h"

#include <algorithm>
#include <cmath>
#include <queue>

namespace maypole::sched {

namespace {

constexpr double kIntegral = 1e-6;
constexpr int kCoverRounds = 8;
constexpr int kNodesWithPairs = 8;  // pairs are tried at the first nodes, then at every eighth: they cost as much as the rest of a node

struct Node {
  std::vector<ExactBox> boxes;
  double bound = kForbidden;
  std::int64_t id = 0;
};

struct WorseNode {
  bool operator()(const Node& a, const Node& b) const { return a.bound != b.bound ? a.bound < b.bound : a.id > b.id; }
};

// How a node is split: feature <= at, or > at.
struct Split {
  int job = -1;
  std::size_t feature = 0;
  std::int16_t at = 0;
};

class Search {
 public:
  Search(const ExactProblem& problem, const ExactColumnList& listed, const ExactLimits& limits)
      : problem_(problem), limits_(limits), pricer_(problem, listed), master_(problem, pricer_), rounding_(problem, pricer_) {
    for (const ExactJob& job : problem.jobs) {
      best_single_ = std::max(best_single_, job.gain.empty() ? 0.0 : *std::ranges::max_element(job.gain));
    }
  }

  ExactAnswer run() {
    answer_.choice.of_job.resize(problem_.jobs.size());
    Node root;
    const ExactResidual empty(problem_);
    for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
      root.boxes.push_back(empty.box(static_cast<int>(j)));
    }
    std::priority_queue<Node, std::vector<Node>, WorseNode> open;
    open.push(std::move(root));
    double unfinished = 0;
    while (!open.empty()) {
      if (open.top().bound <= cutoff()) {
        break;  // and so are all others
      }
      if (answer_.nodes >= limits_.nodes || master_.work().pivots >= limits_.pivots) {
        unfinished = open.top().bound;
        answer_.proven = false;
        break;
      }
      Node node = open.top();
      open.pop();
      ++answer_.nodes;
      const std::optional<Split> split = process(node);
      if (split) {
        for (const bool above : {false, true}) {
          Node child = node;
          ExactBox& box = child.boxes[static_cast<std::size_t>(split->job)];
          (above ? box.low : box.high)[split->feature] = static_cast<std::int16_t>(split->at + (above ? 1 : 0));
          child.id = ++last_id_;
          open.push(std::move(child));
        }
      }
    }
    answer_.bound = std::max({answer_.choice.gain, unfinished, lost_bound_});
    answer_.work = master_.work();
    answer_.work.roundings = roundings_;
    return answer_;
  }

 private:
  // A choice must exceed this to be worth looking for.
  [[nodiscard]] double cutoff() const { return answer_.choice.gain + limits_.gap * std::max(answer_.choice.gain, best_single_); }

  // Solves the node; none: nothing in it is left to find.
  std::optional<Split> process(Node& node) {
    for (int round = 0;; ++round) {
      const MasterOutcome outcome = master_.solve(node.boxes, cutoff(), limits_.pivots - master_.work().pivots);
      if (outcome == MasterOutcome::kPruned) {
        return std::nullopt;
      }
      if (outcome == MasterOutcome::kLimit) {
        lost_bound_ = std::max(lost_bound_, node.bound);
        answer_.proven = false;
        return std::nullopt;
      }
      node.bound = std::min(node.bound, master_.bound());
      const bool fractional = is_fractional();
      if (round == 0 || !fractional) {
        ++roundings_;
        ExactChoice choice = rounding_.round(master_, answer_.nodes <= kNodesWithPairs || answer_.nodes % kNodesWithPairs == 0);
        if (choice.gain > answer_.choice.gain) {
          answer_.choice = std::move(choice);
          for (const std::optional<ExactColumn>& column : answer_.choice.of_job) {
            if (column) {
              master_.add(*column);
            }
          }
          // What was added is not seen by the weights, only by the next solve.
        }
      }
      if (node.bound <= cutoff()) {
        return std::nullopt;
      }
      if (!fractional) {
        // The weights are a choice, and rounding took it, unless the last digits of a sum say that it does not fit.
        lost_bound_ = std::max(lost_bound_, node.bound);
        answer_.proven = false;
        return std::nullopt;
      }
      if (round >= kCoverRounds || !master_.add_covers()) {
        break;
      }
    }
    fix_by_reduced_costs(node);
    return choose_split();
  }

  [[nodiscard]] bool is_fractional() const {
    for (const std::vector<ExactMaster::Weighted>& of_job : master_.weights()) {
      for (const auto& [column, weight] : of_job) {
        if (weight < 1 - kIntegral && weight > kIntegral) {
          return true;
        }
      }
    }
    return false;
  }

  // Closes the side of a feature on which no choice of that job can lift the node above the cutoff.
  void fix_by_reduced_costs(Node& node) {
    const std::size_t num_features = problem_.num_servers() + problem_.edges.size();
    for (std::size_t j = 0; j < node.boxes.size(); ++j) {
      const auto job = static_cast<int>(j);
      const ExactPrices prices = master_.prices_of(job);
      const double needed = master_.place_price(job) + cutoff() - master_.bound();
      ExactBox& box = node.boxes[j];
      for (std::size_t f = 0; f < num_features; ++f) {
        if (box.low[f] == 0 && box.high[f] > 0) {
          ExactBox used = box;
          used.low[f] = 1;
          if (pricer_.price(job, prices, used, needed, 1).empty()) {
            box.high[f] = 0;
          }
        }
      }
    }
  }

  [[nodiscard]] std::optional<Split> choose_split() const {
    Split best;
    double best_score = 0;
    for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
      const std::vector<ExactMaster::Weighted>& of_job = master_.weights()[j];
      double placed = 0;
      for (const auto& [column, weight] : of_job) {
        placed += weight;
      }
      const std::size_t num_features = problem_.num_servers() + problem_.edges.size() + 1;
      for (std::size_t f = 0; f < num_features; ++f) {
        std::vector<std::pair<std::int16_t, double>> values = {{0, std::max(0.0, 1 - placed)}};
        for (const auto& [column, weight] : of_job) {
          values.emplace_back(feature_of(*column, f), weight);
        }
        std::ranges::sort(values);
        double below = 0;
        for (std::size_t k = 0; k + 1 < values.size(); ++k) {
          below += values[k].second;
          if (values[k].first == values[k + 1].first) {
            continue;
          }
          double score = std::min(below, 1 - below);
          if (f >= problem_.num_servers() && f + 1 < num_features) {
            const double capacity = problem_.edges[f - problem_.num_servers()].capacity;
            score *= 1 + std::min(1.0, problem_.jobs[j].bandwidth / capacity);
          }
          if (score > best_score + 1e-9) {
            best_score = score;
            best = {static_cast<int>(j), f, values[k].first};
          }
        }
      }
    }
    return best.job >= 0 ? std::optional(best) : std::nullopt;
  }

  const ExactProblem& problem_;
  const ExactLimits limits_;
  ExactPricer pricer_;
  ExactMaster master_;
  ExactRounding rounding_;
  ExactAnswer answer_;
  double best_single_ = 0;
  double lost_bound_ = 0;  // of nodes that were given up
  std::int64_t last_id_ = 0;
  std::int64_t roundings_ = 0;
};

}  // namespace

ExactAnswer solve_exactly(const ExactProblem& problem, const ExactLimits& limits) {
  ExactColumnList listed;
  listed.of_job.resize(problem.jobs.size());
  if (problem.tree.empty()) {
    listed = list_columns(problem, limits.listed_columns);
  }
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    for (ExactColumn& column : current_columns(problem, static_cast<int>(j), limits.listed_columns)) {
      listed.of_job[j].push_back(std::move(column));
    }
  }
  ExactAnswer answer = Search(problem, listed, limits).run();
  answer.proven = answer.proven && listed.complete;
  return answer;
}

}  // namespace maypole::sched
