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
  double lr = 0;     // SGD: lr; Adam: lr / (1 - beta1^step)
  double decay = 1;  // AdamW: 1 - lr * weight_decay
  double momentum = 0;
  double one_minus_dampening = 1;
  bool nesterov = false;
  bool first = false;  // SGD: the buffer becomes the gradient
  double beta2 = 0;
  double one_minus_beta1 = 0;
  double one_minus_beta2 = 0;
  double root_of_correction2 = 1;  // sqrt(1 - beta2^step)
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
MAYPOLE_INLINE void run_typed(const Job& job, std::size_t count, T* p, const T* g, T* state0, T* state1) {
  if (job.kind == OptimizerKind::kSgd) {
    sgd(job, count, p, g, state0);
  } else {
    adam(job, count, p, g, state0, state1);
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
      return 2;
  }
  return 0;
}

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
  if (kind == OptimizerKind::kSgd) {
    job.momentum = hyper.momentum;
    job.one_minus_dampening = 1 - hyper.dampening;
    job.nesterov = hyper.nesterov;
    job.first = step == 1;
    MAYPOLE_CHECK(hyper.momentum == 0 || state0 != nullptr);
  } else {
    MAYPOLE_CHECK(state0 != nullptr && state1 != nullptr);
    MAYPOLE_CHECK_GE(step, 1);
    const double n = static_cast<double>(step);
    if (kind == OptimizerKind::kAdamW) {
      job.decay = 1 - hyper.lr * hyper.weight_decay;
      job.weight_decay = 0;
    }
    job.lr = hyper.lr / (1 - std::pow(hyper.beta1, n));
    job.beta2 = hyper.beta2;
    job.one_minus_beta1 = 1 - hyper.beta1;
    job.one_minus_beta2 = 1 - hyper.beta2;
    job.root_of_correction2 = std::sqrt(1 - std::pow(hyper.beta2, n));
    job.eps = hyper.eps;
  }
  runner(job);
}

}  // namespace maypole::pipeline
