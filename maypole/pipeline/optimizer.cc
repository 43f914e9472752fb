// SPDX-License-Identifier: Apache-2.0

// One loop body for every instruction set: `run` is inlined into one function per target, so that the compiler vectorises each for
// its own registers. The build turns fused multiply-add off for this file: replicas on different processors must get equal bits.

#include "maypole/pipeline/optimizer.h"

#include "maypole/base/check.h"
#include "maypole/pipeline/half.h"

#include <algorithm>
#include <cmath>

#define MAYPOLE_INLINE [[gnu::always_inline]] inline

namespace maypole::pipeline {
namespace {

/// Everything that is the same for all elements, in double; each kernel casts it once to its own type, as torch does.
struct Job {
  OptimizerKind kind = OptimizerKind::kNone;
  base::DType dtype = base::DType::kFloat32;
  double gradient_scale = 1;
  double weight_decay = 0;
  double lr = 0;     // SGD, RMSprop, Adadelta: lr; Adam and its kin: lr / (1 - beta1^step); Adagrad: lr / (1 + (step - 1) * lr_decay)
  double decay = 1;  // decoupled weight decay: 1 - lr * weight_decay
  double momentum = 0;
  double one_minus_dampening = 1;
  bool nesterov = false;
  bool first = false;  // SGD: the buffer becomes the gradient
  double beta2 = 0;
  double one_minus_beta1 = 0;
  double one_minus_beta2 = 0;
  double root_of_correction2 = 1;  // sqrt(1 - beta2^step)
  double rectification = 0;        // RAdam: r_t; 0 while the variance is not tractable
  bool centered = false;           // RMSprop
  double eps = 0;
  std::size_t count = 0;
  std::byte* parameter = nullptr;
  const std::byte* gradient = nullptr;
  std::byte* state0 = nullptr;
  std::byte* state1 = nullptr;
};

template <typename T>
MAYPOLE_INLINE void sgd(const Job& job, std::size_t count, T* __restrict p, const T* __restrict g, T* __restrict buffer) {
  const T scale = static_cast<T>(job.gradient_scale);
  const T weight_decay = static_cast<T>(job.weight_decay);
  const T lr = static_cast<T>(job.lr);
  const T momentum = static_cast<T>(job.momentum);
  const T rest = static_cast<T>(job.one_minus_dampening);
  if (job.momentum == 0) {
    for (std::size_t k = 0; k < count; ++k) {
      p[k] -= lr * (scale * g[k] + weight_decay * p[k]);
    }
  } else if (job.first) {
    const T factor = job.nesterov ? T{1} + momentum : T{1};
    for (std::size_t k = 0; k < count; ++k) {
      const T d = scale * g[k] + weight_decay * p[k];
      buffer[k] = d;
      p[k] -= lr * (factor * d);
    }
  } else if (job.nesterov) {
    for (std::size_t k = 0; k < count; ++k) {
      const T d = scale * g[k] + weight_decay * p[k];
      const T b = momentum * buffer[k] + rest * d;
      buffer[k] = b;
      p[k] -= lr * (d + momentum * b);
    }
  } else {
    for (std::size_t k = 0; k < count; ++k) {
      const T b = momentum * buffer[k] + rest * (scale * g[k] + weight_decay * p[k]);
      buffer[k] = b;
      p[k] -= lr * b;
    }
  }
}

/// Adam when `decay` is 1, AdamW when weight_decay is 0.
template <typename T>
MAYPOLE_INLINE void adam(const Job& job, std::size_t count, T* __restrict p, const T* __restrict g, T* __restrict mean,
                         T* __restrict square) {
  const T scale = static_cast<T>(job.gradient_scale);
  const T weight_decay = static_cast<T>(job.weight_decay);
  const T decay = static_cast<T>(job.decay);
  const T lr = static_cast<T>(job.lr);
  const T beta2 = static_cast<T>(job.beta2);
  const T rest1 = static_cast<T>(job.one_minus_beta1);
  const T rest2 = static_cast<T>(job.one_minus_beta2);
  const T root = static_cast<T>(job.root_of_correction2);
  const T eps = static_cast<T>(job.eps);
  for (std::size_t k = 0; k < count; ++k) {
    const T d = scale * g[k] + weight_decay * p[k];
    const T m = mean[k] + rest1 * (d - mean[k]);
    const T s = beta2 * square[k] + rest2 * d * d;
    mean[k] = m;
    square[k] = s;
    p[k] = decay * p[k] - (lr * m) / (std::sqrt(s) / root + eps);
  }
}

template <typename T>
MAYPOLE_INLINE void radam(const Job& job, std::size_t count, T* __restrict p, const T* __restrict g, T* __restrict mean,
                          T* __restrict square) {
  const T scale = static_cast<T>(job.gradient_scale);
  const T weight_decay = static_cast<T>(job.weight_decay);
  const T decay = static_cast<T>(job.decay);
  const T lr = static_cast<T>(job.lr);
  const T beta2 = static_cast<T>(job.beta2);
  const T rest1 = static_cast<T>(job.one_minus_beta1);
  const T rest2 = static_cast<T>(job.one_minus_beta2);
  const T factor = static_cast<T>(job.rectification * job.root_of_correction2);
  const bool rectified = job.rectification > 0;
  const T eps = static_cast<T>(job.eps);
  for (std::size_t k = 0; k < count; ++k) {
    const T before = decay * p[k];
    const T d = scale * g[k] + weight_decay * before;
    const T m = mean[k] + rest1 * (d - mean[k]);
    const T s = beta2 * square[k] + rest2 * d * d;
    mean[k] = m;
    square[k] = s;
    p[k] = before - lr * m * (rectified ? factor / (std::sqrt(s) + eps) : T{1});
  }
}

template <typename T>
MAYPOLE_INLINE void adamax(const Job& job, std::size_t count, T* __restrict p, const T* __restrict g, T* __restrict mean,
                           T* __restrict largest) {
  const T scale = static_cast<T>(job.gradient_scale);
  const T weight_decay = static_cast<T>(job.weight_decay);
  const T lr = static_cast<T>(job.lr);
  const T beta2 = static_cast<T>(job.beta2);
  const T rest1 = static_cast<T>(job.one_minus_beta1);
  const T eps = static_cast<T>(job.eps);
  for (std::size_t k = 0; k < count; ++k) {
    const T d = scale * g[k] + weight_decay * p[k];
    const T m = mean[k] + rest1 * (d - mean[k]);
    const T u = std::max(beta2 * largest[k], std::abs(d) + eps);
    mean[k] = m;
    largest[k] = u;
    p[k] -= lr * m / u;
  }
}

template <typename T>
MAYPOLE_INLINE void adadelta(const Job& job, std::size_t count, T* __restrict p, const T* __restrict g, T* __restrict square,
                             T* __restrict moved) {
  const T scale = static_cast<T>(job.gradient_scale);
  const T weight_decay = static_cast<T>(job.weight_decay);
  const T lr = static_cast<T>(job.lr);
  const T rho = static_cast<T>(job.beta2);
  const T rest = static_cast<T>(job.one_minus_beta2);
  const T eps = static_cast<T>(job.eps);
  for (std::size_t k = 0; k < count; ++k) {
    const T d = scale * g[k] + weight_decay * p[k];
    const T s = rho * square[k] + rest * d * d;
    const T delta = std::sqrt(moved[k] + eps) / std::sqrt(s + eps) * d;
    square[k] = s;
    moved[k] = rho * moved[k] + rest * delta * delta;
    p[k] -= lr * delta;
  }
}

template <typename T>
MAYPOLE_INLINE void adagrad(const Job& job, std::size_t count, T* __restrict p, const T* __restrict g, T* __restrict sum) {
  const T scale = static_cast<T>(job.gradient_scale);
  const T weight_decay = static_cast<T>(job.weight_decay);
  const T lr = static_cast<T>(job.lr);
  const T eps = static_cast<T>(job.eps);
  for (std::size_t k = 0; k < count; ++k) {
    const T d = scale * g[k] + weight_decay * p[k];
    const T s = sum[k] + d * d;
    sum[k] = s;
    p[k] -= lr * d / (std::sqrt(s) + eps);
  }
}

/// `second` is the mean gradient where centered, else the momentum buffer, else not used.
template <typename T>
MAYPOLE_INLINE void rms_prop(const Job& job, std::size_t count, T* __restrict p, const T* __restrict g, T* __restrict square,
                             T* __restrict second) {
  const T scale = static_cast<T>(job.gradient_scale);
  const T weight_decay = static_cast<T>(job.weight_decay);
  const T lr = static_cast<T>(job.lr);
  const T alpha = static_cast<T>(job.beta2);
  const T rest = static_cast<T>(job.one_minus_beta2);
  const T momentum = static_cast<T>(job.momentum);
  const T eps = static_cast<T>(job.eps);
  for (std::size_t k = 0; k < count; ++k) {
    const T d = scale * g[k] + weight_decay * p[k];
    const T s = alpha * square[k] + rest * d * d;
    square[k] = s;
    if (job.centered) {
      const T m = second[k] + rest * (d - second[k]);
      second[k] = m;
      p[k] -= lr * d / (std::sqrt(s - m * m) + eps);
    } else if (job.momentum != 0) {
      const T b = momentum * second[k] + d / (std::sqrt(s) + eps);
      second[k] = b;
      p[k] -= lr * b;
    } else {
      p[k] -= lr * d / (std::sqrt(s) + eps);
    }
  }
}

template <typename T>
MAYPOLE_INLINE void run_typed(const Job& job, std::size_t count, T* p, const T* g, T* state0, T* state1) {
  switch (job.kind) {
    case OptimizerKind::kNone:
      break;
    case OptimizerKind::kSgd:
      sgd(job, count, p, g, state0);
      break;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      adam(job, count, p, g, state0, state1);
      break;
    case OptimizerKind::kRAdam:
      radam(job, count, p, g, state0, state1);
      break;
    case OptimizerKind::kAdamax:
      adamax(job, count, p, g, state0, state1);
      break;
    case OptimizerKind::kAdadelta:
      adadelta(job, count, p, g, state0, state1);
      break;
    case OptimizerKind::kAdagrad:
      adagrad(job, count, p, g, state0);
      break;
    case OptimizerKind::kRmsProp:
      rms_prop(job, count, p, g, state0, state1);
      break;
  }
}

template <typename T>
MAYPOLE_INLINE void run_native(const Job& job) {
  run_typed(job, job.count, reinterpret_cast<T*>(job.parameter), reinterpret_cast<const T*>(job.gradient), reinterpret_cast<T*>(job.state0),
            reinterpret_cast<T*>(job.state1));
}

/// Widens a piece to float32 on the stack, updates it there, and rounds once on the way back.
template <typename Half>
MAYPOLE_INLINE void run_half(const Job& job) {
  constexpr std::size_t kPiece = 1024;
  alignas(64) float p[kPiece];
  alignas(64) float g[kPiece];
  alignas(64) float states[2][kPiece];
  Half* const parameter = reinterpret_cast<Half*>(job.parameter);
  const Half* const gradient = reinterpret_cast<const Half*>(job.gradient);
  Half* const state[2] = {reinterpret_cast<Half*>(job.state0), reinterpret_cast<Half*>(job.state1)};
  for (std::size_t begin = 0; begin < job.count; begin += kPiece) {
    const std::size_t count = std::min(kPiece, job.count - begin);
    for (std::size_t k = 0; k < count; ++k) {
      p[k] = widen(parameter[begin + k]);
      g[k] = widen(gradient[begin + k]);
    }
    for (int slot = 0; slot < 2; ++slot) {
      for (std::size_t k = 0; state[slot] != nullptr && k < count; ++k) {
        states[slot][k] = widen(state[slot][begin + k]);
      }
    }
    run_typed<float>(job, count, p, g, states[0], states[1]);
    for (std::size_t k = 0; k < count; ++k) {
      narrow(p[k], parameter[begin + k]);
    }
    for (int slot = 0; slot < 2; ++slot) {
      for (std::size_t k = 0; state[slot] != nullptr && k < count; ++k) {
        narrow(states[slot][k], state[slot][begin + k]);
      }
    }
  }
}

MAYPOLE_INLINE void run(const Job& job) {
  switch (job.dtype) {
    case base::DType::kFloat32:
      run_native<float>(job);
      break;
    case base::DType::kFloat64:
      run_native<double>(job);
      break;
    case base::DType::kBFloat16:
      run_half<BFloat16>(job);
      break;
    case base::DType::kFloat16:
      run_half<_Float16>(job);
      break;
    case base::DType::kByte:
      MAYPOLE_CHECK(job.dtype != base::DType::kByte);
      break;
  }
}

void run_portable(const Job& job) { run(job); }

#if defined(__x86_64__)
[[gnu::target("avx2,f16c")]] void run_avx2(const Job& job) { run(job); }
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,f16c")]] void run_avx512(const Job& job) { run(job); }
#endif

using Runner = void (*)(const Job&);

Runner best_runner() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return run_avx512;
  }
  if (__builtin_cpu_supports("avx2")) {  // every processor with avx2 has f16c
    return run_avx2;
  }
#endif
  return run_portable;
}

}  // namespace

int num_state_slots(OptimizerKind kind, const Hyperparameters& hyper) {
  switch (kind) {
    case OptimizerKind::kNone:
      return 0;
    case OptimizerKind::kSgd:
      return hyper.momentum != 0 ? 1 : 0;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
    case OptimizerKind::kRAdam:
    case OptimizerKind::kAdamax:
    case OptimizerKind::kAdadelta:
      return 2;
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kRmsProp:
      return hyper.centered || hyper.momentum != 0 ? 2 : 1;
  }
  return 0;
}

namespace {

/// The factors of Adam and its kin that change with the step.
void correct_moments(const Hyperparameters& hyper, std::int64_t step, Job& job) {
  MAYPOLE_CHECK_GE(step, 1);
  const double n = static_cast<double>(step);
  const double correction2 = 1 - std::pow(hyper.beta2, n);
  job.lr = hyper.lr / (1 - std::pow(hyper.beta1, n));
  job.one_minus_beta1 = 1 - hyper.beta1;
  job.root_of_correction2 = std::sqrt(correction2);
  if (job.kind == OptimizerKind::kRAdam) {
    // Liu et al., On the Variance of the Adaptive Learning Rate and Beyond, ICLR 2020: the length of the simple moving average.
    const double longest = 2 / (1 - hyper.beta2) - 1;
    const double length = longest - 2 * n * std::pow(hyper.beta2, n) / correction2;
    job.rectification = length > 5 ? std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) : 0;
  }
}

}  // namespace

void update(OptimizerKind kind, base::DType dtype, const Hyperparameters& hyper, std::int64_t step, double gradient_scale,
            std::size_t count, std::byte* parameter, const std::byte* gradient, std::byte* state0, std::byte* state1) {
  static const Runner runner = best_runner();
  if (count == 0 || kind == OptimizerKind::kNone) {
    return;
  }
  Job job;
  job.kind = kind;
  job.dtype = dtype;
  job.gradient_scale = hyper.maximize ? -gradient_scale : gradient_scale;
  job.lr = hyper.lr;
  job.weight_decay = hyper.weight_decay;
  job.count = count;
  job.parameter = parameter;
  job.gradient = gradient;
  job.state0 = state0;
  job.state1 = state1;
  job.momentum = hyper.momentum;
  job.beta2 = hyper.beta2;
  job.one_minus_beta2 = 1 - hyper.beta2;
  job.eps = hyper.eps;
  const int slots = num_state_slots(kind, hyper);
  MAYPOLE_CHECK(slots < 1 || state0 != nullptr);
  MAYPOLE_CHECK(slots < 2 || state1 != nullptr);
  if (kind == OptimizerKind::kAdamW || (kind == OptimizerKind::kRAdam && hyper.decoupled)) {
    job.decay = 1 - hyper.lr * hyper.weight_decay;
    job.weight_decay = 0;
  }
  switch (kind) {
    case OptimizerKind::kNone:
    case OptimizerKind::kAdadelta:
      break;
    case OptimizerKind::kSgd:
      job.one_minus_dampening = 1 - hyper.dampening;
      job.nesterov = hyper.nesterov;
      job.first = step == 1;
      break;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
    case OptimizerKind::kRAdam:
    case OptimizerKind::kAdamax:
      correct_moments(hyper, step, job);
      break;
    case OptimizerKind::kAdagrad:
      job.lr = hyper.lr / (1 + static_cast<double>(step - 1) * hyper.lr_decay);
      break;
    case OptimizerKind::kRmsProp:
      job.centered = hyper.centered;
      break;
  }
  runner(job);
}

}  // namespace maypole::pipeline
