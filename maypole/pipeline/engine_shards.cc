// SPDX-License-Identifier: Apache-2.0

// What updates replaced: shards for those who keep copies of them, as they are or as they were a step ago, and steps taken back.

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/pipeline/engine_impl.h"

#include <cstring>
#include <utility>

namespace maypole::pipeline {

std::vector<model::Interval> EngineImpl::shard_elements(ModelId id, std::size_t i, int rank) {
  return model(id).memory->shard_elements(i, rank);
}

absl::StatusOr<std::vector<std::byte>> EngineImpl::read_shard(ModelId id, std::uint64_t steps) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  while (m.updating) {
    changed_.wait(mutex_);
  }
  const bool whole = m.updates_begun == m.updates_done;  // no group is a step ahead of another
  const bool now = whole && m.updates_done == steps;
  // What a step replaced is at hand until the next round begins.
  const bool before = m.memory->keeps_previous() && m.stage == Stage::kStepped && m.updates_begun == m.steps && m.steps == steps + 1;
  const bool untouched = whole && m.stage == Stage::kStepped && m.updates_begun < m.steps && m.steps == steps + 1;
  if (!now && !before && !untouched) {
    return base::error(absl::StatusCode::kUnavailable,
                       "rank {} does not have its shard as it was after step {}: its last update is that of step {}", rank_, steps,
                       m.updates_begun);
  }
  const bool back = before && !now && !m.drop;
  std::vector<std::byte> shard(m.specs.size() * sizeof(std::int64_t));
  for (std::size_t i = 0; i < m.specs.size(); ++i) {
    const std::int64_t count = m.update_count[i] - (back ? m.used[i] : 0);
    std::memcpy(shard.data() + i * sizeof count, &count, sizeof count);
    m.memory->append_shard(i, [&](std::size_t g) { return back && m.groups[g].updated && m.used[i] != 0; }, shard);
  }
  return shard;
}

absl::StatusOr<std::uint64_t> EngineImpl::take_back(ModelId id) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  if (m.sharded) {
    return base::error(absl::StatusCode::kFailedPrecondition, "model {} is sharded: no rank has a whole step of it", id);
  }
  while (m.updating || m.updates_on_alone()) {
    changed_.wait(mutex_);
  }
  if (m.stage != Stage::kStepped) {
    return m.steps;
  }
  const bool begun = m.updates_begun == m.steps && !m.drop;
  if (begun && !m.memory->keeps_previous()) {
    return base::error(absl::StatusCode::kFailedPrecondition,
                       "step {} of model {} broke off in its update, and nothing was kept of the one before", m.steps, id);
  }
  for (std::size_t g = 0; begun && g < m.num_groups(); ++g) {
    if (m.groups[g].updated) {
      MAYPOLE_CHECK(m.groups[g].kept);
      m.memory->restore_group(g, m.used);
    }
  }
  for (std::size_t i = 0; begun && i < m.specs.size(); ++i) {
    m.update_count[i] -= m.used[i];
  }
  --m.steps;
  m.updates_begun = m.updates_done = m.steps;
  m.become_idle();
  changed_.notify_all();
  return m.steps;
}

void EngineImpl::offer(std::uint32_t number, std::shared_ptr<const std::vector<std::byte>> bytes) {
  base::MutexLock lock(mutex_);
  if (bytes == nullptr) {
    offers_.erase(number);
  } else {
    offers_[number] = std::move(bytes);
  }
}

absl::StatusOr<std::vector<std::byte>> EngineImpl::answer_offer(std::uint64_t key) {
  std::shared_ptr<const std::vector<std::byte>> bytes;
  {
    base::MutexLock lock(mutex_);
    const auto entry = offers_.find(static_cast<std::uint32_t>((key >> 32) & 0xffffffU));
    if (entry == offers_.end()) {
      return base::error(absl::StatusCode::kUnavailable, "rank {} does not offer this copy (yet)", rank_);
    }
    bytes = entry->second;
  }
  const std::size_t begin = std::min(bytes->size(), (key & 0xffffffffU) * kOfferPiece);
  const std::size_t size = std::min(kOfferPiece, bytes->size() - begin);
  const auto first = bytes->begin() + static_cast<std::ptrdiff_t>(begin);
  return std::vector<std::byte>(first, first + static_cast<std::ptrdiff_t>(size));
}

absl::StatusOr<std::vector<std::byte>> EngineImpl::fetch(int peer, std::uint32_t number, std::uint32_t piece) {
  return communicator_->read_peer(peer, kOfferMark << 56 | static_cast<std::uint64_t>(number & 0xffffffU) << 32 | piece, options_.timeout);
}

}  // namespace maypole::pipeline
