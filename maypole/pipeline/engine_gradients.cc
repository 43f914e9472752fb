// SPDX-License-Identifier: Apache-2.0

// What a script may do with gradients between backward and step(): look at the averages, edit, clip, or drop them.

#include "maypole/base/status.h"
#include "maypole/pipeline/elements.h"
#include "maypole/pipeline/engine_impl.h"
#include "maypole/pipeline/unlocked.h"

#include <cmath>
#include <memory>

namespace maypole::pipeline {

absl::Status EngineImpl::synchronize(ModelId id) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  MAYPOLE_RETURN_IF_ERROR(ensure_closed(m));
  return gather_averages(m);
}

bool EngineImpl::used(ModelId id, std::size_t i) {
  base::MutexLock lock(mutex_);
  return model(id).used[i] != 0;
}

void EngineImpl::set_used(ModelId id, std::size_t i, bool used) {
  base::MutexLock lock(mutex_);
  model(id).used[i] = used ? 1 : 0;
}

absl::StatusOr<double> EngineImpl::gradient_norm(ModelId id, double norm_type) {
  ModelState& m = model(id);
  if (!(norm_type >= 1)) {
    return base::error(absl::StatusCode::kInvalidArgument, "norm_type must be at least 1 or infinity, and is {}", norm_type);
  }
  const auto powers = std::make_shared<std::vector<double>>(static_cast<std::size_t>(num_ranks_));  // one slot a rank
  double scale = 1;
  {
    base::MutexLock lock(mutex_);
    MAYPOLE_RETURN_IF_ERROR(ensure_closed(m));
    if (m.options.compress_bfloat16) {  // a gather rounds the shard: take the norm of what the update will see
      MAYPOLE_RETURN_IF_ERROR(gather_averages(m));
    }
    if (m.synchronized) {
      double total = 0;
      for (std::size_t i = 0; i < m.specs.size(); ++i) {
        total = m.used[i] != 0 ? combine_powers(total, m.memory->gradient_powers(i, norm_type), norm_type) : total;
      }
      return norm_from_powers(total, norm_type);
    }
    MAYPOLE_RETURN_IF_ERROR(await_reduced(m));
    scale = std::abs(m.scale);
  }
  (*powers)[static_cast<std::size_t>(rank_)] = m.memory->shard_powers(norm_type);
  if (num_ranks_ > 1) {
    const comm::Work summed = communicator_->all_reduce(reinterpret_cast<std::byte*>(powers->data()), powers->size(), base::DType::kFloat64,
                                                        comm::ReduceOp::kSum);
    summed.on_done([powers](const absl::Status&) {});
    const comm::Work::Waiting waiting(summed);
    MAYPOLE_RETURN_IF_ERROR(summed.wait_for(options_.timeout));
  }
  double total = 0;
  for (const double power : *powers) {
    total = combine_powers(total, power, norm_type);
  }
  return scale * norm_from_powers(total, norm_type);
}

void EngineImpl::scale_gradients(ModelId id, double factor) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  if (!m.synchronized) {
    m.scale *= factor;
    return;
  }
  const Unlocked unlocked(mutex_);
  for (std::size_t i = 0; i < m.specs.size(); ++i) {
    m.memory->scale_gradient(i, factor);
  }
}

absl::Status EngineImpl::discard_gradients(ModelId id) {
  ModelState& m = model(id);
  base::MutexLock lock(mutex_);
  if (m.stage == Stage::kOpen) {
    MAYPOLE_RETURN_IF_ERROR(close_open_rounds());
  }
  if (m.stage != Stage::kClosed) {
    return error_;
  }
  // What the peers have begun must end on every rank; open all-gathers end only when all supply them.
  MAYPOLE_RETURN_IF_ERROR(m.sharded ? await_reduced(m) : gather_averages(m));
  ++m.discards;
  m.become_idle();
  return absl::OkStatus();
}

}  // namespace maypole::pipeline
