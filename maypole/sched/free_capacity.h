// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is left of servers and links while a slot is being filled.

#include "maypole/model/cluster.h"
#include "maypole/model/job.h"

namespace maypole::sched {

/// Relative slack within which a load counts as fitting: sums of doubles differ in their last bits by the order of addition.
inline constexpr double kFitTolerance = 1e-9;

class FreeCapacity {
 public:
  /// All of the cluster is free. The cluster must outlive this.
  explicit FreeCapacity(const model::Cluster& cluster);

  /// Workers of that demand that fit on the server now, at most `limit`.
  [[nodiscard]] int workers_that_fit(model::ServerId server, const model::Amounts& demand, int limit) const;
  /// Payload bytes per second left on the link; infinite where the link never binds.
  [[nodiscard]] double left(model::LinkId link) const { return bandwidth_[link]; }
  [[nodiscard]] double left(model::ServerId server, model::ResourceId resource) const { return amounts_[server][resource]; }
  /// Whether servers and links hold the embedding (loads of its own edges on a shared link added up).
  [[nodiscard]] bool fits(const model::Job& job, const model::Embedding& embedding) const;
  void take(const model::Job& job, const model::Embedding& embedding);
  void give_back(const model::Job& job, const model::Embedding& embedding);

 private:
  void add(const model::Job& job, const model::Embedding& embedding, double sign);

  const model::Cluster* cluster_;
  base::IdVector<model::ServerId, model::Amounts> amounts_;
  base::IdVector<model::LinkId, double> bandwidth_;
};

}  // namespace maypole::sched
