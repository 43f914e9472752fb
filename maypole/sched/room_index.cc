// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/room_index.h"

#include <algorithm>

namespace maypole::sched {

RoomIndex::RoomIndex(const model::Cluster& cluster, const FreeCapacity& free) : cluster_(&cluster), resources_(cluster.num_resources()) {
  while (leaves_ < cluster.num_servers()) {
    leaves_ *= 2;
  }
  most_.assign(2 * leaves_ * resources_, -1);
  for (std::size_t s = 0; s < cluster.num_servers(); ++s) {
    set_leaf(s, free);
  }
  for (std::size_t node = leaves_ - 1; node > 0; --node) {
    pull(node);
  }
}

void RoomIndex::set_leaf(std::size_t server, const FreeCapacity& free) {
  const auto id = model::ServerId::from_index(server);
  for (std::size_t i = 0; i < resources_; ++i) {
    const auto r = model::ResourceId::from_index(i);
    most_[(leaves_ + server) * resources_ + i] = free.left(id, r) + kFitTolerance * cluster_->server(id).capacity[r];
  }
}

void RoomIndex::pull(std::size_t node) {
  for (std::size_t i = 0; i < resources_; ++i) {
    most_[node * resources_ + i] = std::max(most_[2 * node * resources_ + i], most_[(2 * node + 1) * resources_ + i]);
  }
}

void RoomIndex::update(model::ServerId server, const FreeCapacity& free) {
  set_leaf(server.index(), free);
  for (std::size_t node = (leaves_ + server.index()) / 2; node > 0; node /= 2) {
    pull(node);
  }
}

bool RoomIndex::may_hold(std::size_t node, const model::Amounts& demand) const {
  for (std::size_t i = 0; i < resources_; ++i) {
    const double amount = demand[model::ResourceId::from_index(i)];
    if (amount > 0 && most_[node * resources_ + i] < amount) {
      return false;
    }
  }
  return true;
}

model::ServerId RoomIndex::next(std::size_t from, const model::Amounts& demand) const {
  if (from >= cluster_->num_servers()) {
    return {};
  }
  std::size_t node = leaves_ + from;
  while (true) {
    if (may_hold(node, demand)) {
      if (node >= leaves_) {
        const std::size_t server = node - leaves_;
        return server < cluster_->num_servers() ? model::ServerId::from_index(server) : model::ServerId();
      }
      node *= 2;
      continue;
    }
    while (node % 2 == 1) {  // nothing here: the next subtree to the right
      node /= 2;
    }
    if (node == 0) {
      return {};
    }
    ++node;
  }
}

}  // namespace maypole::sched
