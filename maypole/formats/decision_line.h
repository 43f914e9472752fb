// SPDX-License-Identifier: Apache-2.0
#pragma once

// A slot's decision as one line of JSON (`--decisions d.jsonl`), by names: whoever decides turns ids into names, whoever checks turns
// names into ids (NamedCluster). `null` stands for what is not known: a bound, a gap, a ring that reserves no bandwidth.

#include "maypole/formats/document.h"
#include "maypole/model/job.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace maypole::formats {

struct JobLine {
  std::string id;
  std::vector<std::string> ring;                // [worker]: server, in ring order; not empty
  std::vector<std::vector<std::string>> edges;  // [k]: links from ring[k] to ring[k+1 mod w]; none for one worker
  base::Bandwidth bandwidth;                    // reserved on each link of each edge
  bool operator==(const JobLine&) const = default;
};

struct DecisionLine {
  std::int64_t slot = 0;
  std::vector<JobLine> jobs;  // only those with workers
  double utility = 0;
  std::optional<double> objective;  // written where the policy has one
  std::optional<double> bound;
  std::optional<double> bound_lp;
  std::optional<double> gap;
  bool limited = false;
  double seconds = 0;
  bool operator==(const DecisionLine&) const = default;
};

/// The line, without its newline. Numbers must be finite.
[[nodiscard]] std::string decision_json(const DecisionLine& decision);
/// The same where it is a part of another document.
[[nodiscard]] DecisionLine read_decision(const Value& value);
/// Errors: `d.jsonl:12: jobs.j3.edges: ...`; `workers` other than the ring's length, edges other than one per worker (none for one).
[[nodiscard]] absl::StatusOr<DecisionLine> parse_decision_line(std::string_view text, std::string_view file, int line);
/// All lines of a file; an error where a slot is missing, doubled or out of order (slots count from 0).
[[nodiscard]] absl::StatusOr<std::vector<DecisionLine>> read_decisions(const std::string& path);

/// A cluster's servers and links by name, in constant time. The cluster must outlive it.
class NamedCluster {
 public:
  explicit NamedCluster(const model::Cluster& cluster);
  /// Errors name the job and the server or link that the cluster does not have.
  [[nodiscard]] absl::StatusOr<model::Embedding> embedding(const JobLine& job) const;

 private:
  std::unordered_map<std::string_view, model::ServerId> servers_;
  std::unordered_map<std::string_view, model::LinkId> links_;
};

[[nodiscard]] JobLine job_line(std::string_view id, const model::Embedding& embedding, const model::Cluster& cluster);

}  // namespace maypole::formats
