// SPDX-License-Identifier: Apache-2.0
#pragma once

// Native updates that equal torch.optim: SGD (momentum, Nesterov, dampening, weight decay, maximize), Adam, AdamW (no amsgrad).
// Pure functions over runs of elements, so that they work on whole tensors, on groups and on shards alike.

#include "maypole/base/dtype.h"

#include <cstddef>
#include <cstdint>

namespace maypole::pipeline {

/// kNone: the front end updates by itself (torch's optimizer) after synchronize().
enum class OptimizerKind : std::uint8_t { kNone, kSgd, kAdam, kAdamW };

/// Hyperparameters of one param group, as torch names them; read at step(), so learning-rate schedulers mean what they say.
struct Hyperparameters {
  double lr = 1e-3;
  double weight_decay = 0;
  double momentum = 0;    // SGD
  double dampening = 0;   // SGD
  bool nesterov = false;  // SGD
  double beta1 = 0.9;     // Adam, AdamW
  double beta2 = 0.999;
  double eps = 1e-8;
  bool maximize = false;
};

/// Number of state arrays per element: 0 or 1 for SGD (momentum_buffer), 2 for Adam and AdamW (exp_avg, exp_avg_sq).
[[nodiscard]] int num_state_slots(OptimizerKind kind, const Hyperparameters& hyper);

/// Updates `count` elements. `step` counts this parameter's updates from 1. `gradient_scale` multiplies the gradient (clipping).
/// `state0`, `state1` may be null where the slot is not used. Arithmetic is in the parameter's dtype as torch does it
/// (float32 and float64 natively; bfloat16 and float16 compute in float32 and round once an operation group, as torch's fused CPU kernels
/// do).
void update(OptimizerKind kind, base::DType dtype, const Hyperparameters& hyper, std::int64_t step, double gradient_scale,
            std::size_t count, std::byte* parameter, const std::byte* gradient, std::byte* state0, std::byte* state1);

}  // namespace maypole::pipeline
