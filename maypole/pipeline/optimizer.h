// SPDX-License-Identifier: Apache-2.0
#pragma once

// Native updates that equal torch.optim: SGD (momentum, Nesterov, dampening, weight decay, maximize), Adam, AdamW (no amsgrad), and the
// other element-wise ones: RAdam, Adamax, Adadelta, Adagrad, RMSprop (centered or with momentum, not both: two state arrays are the most).
// Pure functions over runs of elements, so that they work on whole tensors, on groups and on shards alike.

#include "maypole/base/dtype.h"

#include <cstddef>
#include <cstdint>

namespace maypole::pipeline {

/// kNone: the front end updates by itself (torch's optimizer) after synchronize().
enum class OptimizerKind : std::uint8_t { kNone, kSgd, kAdam, kAdamW, kRAdam, kAdamax, kAdadelta, kAdagrad, kRmsProp };

/// Hyperparameters of one param group, as torch names them; read at step(), so learning-rate schedulers mean what they say.
struct Hyperparameters {
  double lr = 1e-3;
  double weight_decay = 0;
  double momentum = 0;    // SGD, RMSprop
  double dampening = 0;   // SGD
  bool nesterov = false;  // SGD
  double beta1 = 0.9;     // Adam, AdamW, RAdam, Adamax
  double beta2 = 0.999;   // the same; Adadelta: rho; RMSprop: alpha
  double eps = 1e-8;      // all but SGD
  bool maximize = false;
  bool decoupled = false;  // RAdam: weight decay as in AdamW
  bool centered = false;   // RMSprop
  double lr_decay = 0;     // Adagrad
};

/// Number of state arrays per element, named as in torch: SGD none or momentum_buffer; Adam, AdamW, RAdam exp_avg, exp_avg_sq; Adamax
/// exp_avg, exp_inf; Adadelta square_avg, acc_delta; Adagrad sum; RMSprop square_avg and, by its options, grad_avg or momentum_buffer.
[[nodiscard]] int num_state_slots(OptimizerKind kind, const Hyperparameters& hyper);

/// Updates `count` elements. `step` counts this parameter's updates from 1. `gradient_scale` multiplies the gradient (clipping).
/// `state0`, `state1` may be null where the slot is not used. Arithmetic is in the parameter's dtype as torch does it
/// (float32 and float64 natively; bfloat16 and float16 compute in float32 and round once an operation group, as torch's fused CPU kernels
/// do).
void update(OptimizerKind kind, base::DType dtype, const Hyperparameters& hyper, std::int64_t step, double gradient_scale,
            std::size_t count, std::byte* parameter, const std::byte* gradient, std::byte* state0, std::byte* state1);

}  // namespace maypole::pipeline
