// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finds servers with room without looking at all of them: a complete binary tree over the servers in order of their ids, in which every
// node knows the largest free amount of each resource below it.

#include "maypole/sched/free_capacity.h"

#include <vector>

namespace maypole::sched {

class RoomIndex {
 public:
  RoomIndex(const model::Cluster& cluster, const FreeCapacity& free);

  /// To be called after the server's free amounts changed. O(log n).
  void update(model::ServerId server, const FreeCapacity& free);
  /// The first server at or after position `from` that has room for one `demand`; invalid where none has. O(log n) where one resource
  /// decides; more where different servers lack different resources.
  [[nodiscard]] model::ServerId next(std::size_t from, const model::Amounts& demand) const;

 private:
  void set_leaf(std::size_t server, const FreeCapacity& free);
  void pull(std::size_t node);
  [[nodiscard]] bool may_hold(std::size_t node, const model::Amounts& demand) const;

  const model::Cluster* cluster_;
  std::size_t resources_;
  std::size_t leaves_ = 1;    // a power of two; node k has the children 2k and 2k+1, leaf s is node leaves_ + s
  std::vector<double> most_;  // [node * resources_ + resource]
};

}  // namespace maypole::sched
