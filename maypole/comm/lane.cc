// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/lane.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <algorithm>
#include <cstring>

namespace maypole::comm {

namespace {

// Beyond this much set aside the sender has to wait after all.
constexpr std::size_t kSetAsideLimit = std::size_t{256} << 20;

}  // namespace

absl::Status LaneState::start(std::unique_ptr<Collective> collective, std::int64_t priority, base::TimePoint now) {
  const std::uint64_t sequence = collective->header().sequence;
  Collective& started = *collective;
  if (operations_.contains(sequence)) {
    return base::error(absl::StatusCode::kInvalidArgument, "{} was started twice", started.describe());
  }
  by_priority_.emplace(std::pair{priority, sequence}, &started);
  operations_.emplace(sequence, Entry{std::move(collective), priority, now});
  const auto waiting = set_aside_.find(sequence);
  if (waiting != set_aside_.end()) {
    for (; !waiting->second.empty(); waiting->second.pop_front()) {
      const SetAside frame = waiting->second.front();
      MAYPOLE_ASSIGN_OR_RETURN(const bool accepted, accept_from(frame.header, -1, previous_));
      MAYPOLE_CHECK(accepted);
      MAYPOLE_RETURN_IF_ERROR(started.deliver(frame.header, frame.buffer));
      context_.pool->release(frame.buffer);
      set_aside_bytes_ -= frame.header.bytes;
    }
    set_aside_.erase(waiting);
  }
  return absl::OkStatus();
}

Collective* LaneState::find(std::uint64_t sequence) {
  const auto entry = operations_.find(sequence);
  return entry == operations_.end() ? nullptr : entry->second.collective.get();
}

Collective* LaneState::sender() {
  for (const auto& [order, collective] : by_priority_) {
    if (collective->has_outgoing()) {
      return collective;
    }
    if (lane_ == Lane::kUser && !collective->all_sent()) {
      return nullptr;
    }
  }
  return nullptr;
}

Collective* LaneState::exchanger(std::size_t link) {
  for (const auto& [order, collective] : by_priority_) {
    if (collective->has_exchange(link)) {
      return collective;
    }
    if (!collective->all_sent()) {
      return nullptr;
    }
  }
  return nullptr;
}

std::vector<std::unique_ptr<Collective>> LaneState::take_complete() {
  std::vector<std::unique_ptr<Collective>> complete;
  for (auto it = operations_.begin(); it != operations_.end();) {
    if (it->second.collective->complete()) {
      by_priority_.erase({it->second.priority, it->first});
      complete.push_back(std::move(it->second.collective));
      it = operations_.erase(it);
    } else {
      ++it;
    }
  }
  return complete;
}

void LaneState::clear() {
  for (auto& [sequence, frames] : set_aside_) {
    for (const SetAside& frame : frames) {
      context_.pool->release(frame.buffer);
    }
  }
  set_aside_.clear();
  by_priority_.clear();
  operations_.clear();
}

void LaneState::fail(const absl::Status& reason) {
  for (auto& [sequence, entry] : operations_) {
    entry.collective->work().finish(reason);
  }
  clear();
}

bool LaneState::has_younger_than(base::TimePoint time) const {
  return std::ranges::any_of(operations_, [time](const auto& entry) { return entry.second.started > time; });
}

std::pair<base::TimePoint, std::string> LaneState::oldest() const {
  std::pair<base::TimePoint, std::string> result{base::TimePoint::max(), ""};
  const Entry* oldest = nullptr;
  for (const auto& [sequence, entry] : operations_) {
    if (entry.started < result.first) {
      result.first = entry.started;
      oldest = &entry;
    }
  }
  if (oldest != nullptr) {
    result.second = oldest->collective->describe();
  }
  return result;
}

std::optional<Wait> LaneState::waited() const {
  std::optional<Wait> longest;
  for (const auto& [sequence, entry] : operations_) {
    const std::optional<base::TimePoint> since = entry.collective->work().waited_since();
    if (since && (!longest || *since < longest->since)) {
      longest = Wait{*since, entry.collective->describe()};
    }
  }
  return longest;
}

void LaneState::forgive(base::Nanoseconds gap) {
  for (auto& [sequence, entry] : operations_) {
    entry.started += gap;
  }
}

absl::StatusOr<bool> LaneState::accept_from(const FrameHeader& header, int link, const std::string& peer) {
  if (header.epoch != context_.epoch) {
    return base::error(absl::StatusCode::kFailedPrecondition, "{} sent a frame of epoch {}; this ring is epoch {}", peer, header.epoch,
                       context_.epoch);
  }
  Collective* collective = find(header.sequence);
  if (collective == nullptr) {
    if (header.bytes > context_.pool->segment_bytes()) {
      return base::error(absl::StatusCode::kFailedPrecondition, "{} sent a segment of {} bytes; at most {} are allowed", peer, header.bytes,
                         context_.pool->segment_bytes());
    }
    return lane_ == Lane::kReduceScatter && set_aside_bytes_ + header.bytes <= kSetAsideLimit;
  }
  if (header.check != collective->header().check) {
    return base::error(
        absl::StatusCode::kFailedPrecondition,
        "{} disagrees about operation {}: this rank runs {}; sizes, types and order of collectives must be equal on all ranks", previous_,
        header.sequence, collective->describe());
  }
  if (!collective->ready_for(header, link)) {
    return false;
  }
  MAYPOLE_RETURN_IF_ERROR(collective->validate(header));
  return true;
}

std::byte* LaneState::destination(const FrameHeader& header) {
  Collective* collective = find(header.sequence);
  if (collective != nullptr) {
    return collective->destination(header);
  }
  set_aside_buffer_ = context_.pool->acquire();
  return set_aside_buffer_;
}

absl::Status LaneState::deliver(const FrameHeader& header, const std::byte* payload) {
  received_bytes_ += header.bytes;
  Collective* collective = find(header.sequence);
  std::byte* buffer = std::exchange(set_aside_buffer_, nullptr);
  if (collective == nullptr) {
    if (buffer == nullptr) {
      buffer = context_.pool->acquire();
      std::memcpy(buffer, payload, header.bytes);
    }
    set_aside_[header.sequence].push_back({header, buffer});
    set_aside_bytes_ += header.bytes;
    return absl::OkStatus();
  }
  if (buffer != nullptr) {  // it was started while the payload was arriving
    MAYPOLE_RETURN_IF_ERROR(accept_from(header, -1, previous_).status());
    const absl::Status status = collective->deliver(header, buffer);
    context_.pool->release(buffer);
    return status;
  }
  return collective->deliver(header, payload);
}

}  // namespace maypole::comm
