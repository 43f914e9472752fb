// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/optimizer.h"
#include "maypole/base/test_seed.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace maypole::pipeline {
namespace {

struct Case {
  OptimizerKind kind = OptimizerKind::kNone;
  Hyperparameters hyper;
  std::vector<double> after;  // `steps` steps of torch 2.13 in float64 from `kStart` with `kGradients`, over and over
  int steps = 3;
};

constexpr double kStart[3] = {0.5, -1.25, 2.0};
constexpr double kGradients[3][3] = {{0.1, -0.2, 0.3}, {-0.4, 0.05, 0.25}, {0.7, 0.0, -0.15}};

std::vector<Case> torch_cases() {
  return {
      {OptimizerKind::kSgd, {.lr = 0.1}, {0.46, -1.2349999999999999, 1.96}},
      {OptimizerKind::kSgd,
       {.lr = 0.1, .weight_decay = 0.01, .momentum = 0.9},
       {0.47609538949999997, -1.1983644787499999, 1.8751285679999998}},
      {OptimizerKind::kSgd,
       {.lr = 0.1, .weight_decay = 0.01, .momentum = 0.9, .nesterov = true},
       {0.43695096198049993, -1.18491389924625, 1.841908786512}},
      {OptimizerKind::kSgd,
       {.lr = 0.1, .weight_decay = 0.01, .momentum = 0.8, .dampening = 0.3, .maximize = true},
       {0.520795909655, -1.2869558216875, 2.08531818372}},
      {OptimizerKind::kAdam, {.lr = 0.01}, {0.49228415530469755, -1.2316763168449971, 1.9752288654316401}},
      {OptimizerKind::kAdam,
       {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.4, .beta2 = 0.9, .eps = 1e-3, .maximize = true},
       {0.5069268090900874, -1.2435826977143867, 2.0089301284556895}},
      {OptimizerKind::kAdamW, {.lr = 0.01, .weight_decay = 0.1}, {0.49080004976795, -1.2279547502753876, 1.9692647651593607}},
      {OptimizerKind::kAdamW,
       {.lr = 0.02, .weight_decay = 0.2, .beta1 = 0.5, .beta2 = 0.99, .eps = 1e-4, .maximize = true},
       {0.5106854400645364, -1.2618621859240953, 2.017537924317108}},
      {OptimizerKind::kRAdam,
       {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-4},
       {0.491944409513583, -1.2318528755212124, 1.9718404769983902},
       8},
      {OptimizerKind::kRAdam,
       {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.8, .maximize = true, .decoupled = true},
       {0.5020551738523649, -1.2497491609843274, 2.002142071595404},
       8},
      {OptimizerKind::kAdamax,
       {.lr = 0.02, .weight_decay = 0.1, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-4},
       {0.46134695067257503, -1.1491251821269837, 1.8713167475766754},
       8},
      {OptimizerKind::kAdadelta,
       {.lr = 0.5, .weight_decay = 0.1, .beta2 = 0.8, .eps = 1e-3},
       {0.43622838426647603, -1.0696344874156876, 1.7701932853422602},
       8},
      {OptimizerKind::kAdagrad,
       {.lr = 0.1, .weight_decay = 0.05, .eps = 1e-4, .lr_decay = 0.1},
       {0.40251689648514294, -1.031135050484281, 1.7260516186180976},
       8},
      {OptimizerKind::kRmsProp,
       {.lr = 0.01, .weight_decay = 0.1, .beta2 = 0.9, .eps = 1e-4},
       {0.46141160636546946, -1.1390288030740603, 1.8747896498582808},
       8},
      {OptimizerKind::kRmsProp,
       {.lr = 0.01, .momentum = 0.5, .beta2 = 0.9, .eps = 1e-4, .maximize = true},
       {0.5648214554143367, -1.3569013951037472, 2.1696059624888226},
       8},
      {OptimizerKind::kRmsProp,
       {.lr = 0.01, .beta2 = 0.9, .eps = 1e-4, .centered = true},
       {0.46897806755546007, -1.1891309475281855, 1.8930497809802977},
       8},
  };
}

TEST(Optimizer, EqualsTorchAfterSomeStepsInFloat64) {
  for (const Case& c : torch_cases()) {
    std::vector<double> p(kStart, kStart + 3);
    std::vector<double> state0(3);
    std::vector<double> state1(3);
    for (int step = 1; step <= c.steps; ++step) {
      update(c.kind, base::DType::kFloat64, c.hyper, step, 1.0, 3, reinterpret_cast<std::byte*>(p.data()),
             reinterpret_cast<const std::byte*>(kGradients[(step - 1) % 3]), reinterpret_cast<std::byte*>(state0.data()),
             reinterpret_cast<std::byte*>(state1.data()));
    }
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_NEAR(p[k], c.after[k], 1e-14);
    }
  }
}

/// The formulas of torch.optim, one element at a time, in double.
void reference(const Case& c, int step, double scale, double gradient, double& p, double& s0, double& s1) {
  double g = scale * (c.hyper.maximize ? -gradient : gradient);
  if (c.kind == OptimizerKind::kAdamW || c.hyper.decoupled) {
    p *= 1 - c.hyper.lr * c.hyper.weight_decay;
  } else {
    g += c.hyper.weight_decay * p;
  }
  if (c.kind == OptimizerKind::kSgd) {
    if (c.hyper.momentum != 0) {
      s0 = step == 1 ? g : c.hyper.momentum * s0 + (1 - c.hyper.dampening) * g;
      g = c.hyper.nesterov ? g + c.hyper.momentum * s0 : s0;
    }
    p -= c.hyper.lr * g;
    return;
  }
  const double kept = c.hyper.beta2;
  if (c.kind == OptimizerKind::kAdagrad) {
    s0 += g * g;
    p -= c.hyper.lr / (1 + (step - 1) * c.hyper.lr_decay) * g / (std::sqrt(s0) + c.hyper.eps);
    return;
  }
  if (c.kind == OptimizerKind::kAdadelta) {
    s0 = kept * s0 + (1 - kept) * g * g;
    const double delta = g * std::sqrt((s1 + c.hyper.eps) / (s0 + c.hyper.eps));
    s1 = kept * s1 + (1 - kept) * delta * delta;
    p -= c.hyper.lr * delta;
    return;
  }
  if (c.kind == OptimizerKind::kRmsProp) {
    s0 = kept * s0 + (1 - kept) * g * g;
    if (c.hyper.centered) {
      s1 = kept * s1 + (1 - kept) * g;
      p -= c.hyper.lr * g / (std::sqrt(s0 - s1 * s1) + c.hyper.eps);
    } else {
      const double direction = g / (std::sqrt(s0) + c.hyper.eps);
      s1 = c.hyper.momentum != 0 ? c.hyper.momentum * s1 + direction : s1;
      p -= c.hyper.lr * (c.hyper.momentum != 0 ? s1 : direction);
    }
    return;
  }
  s0 = c.hyper.beta1 * s0 + (1 - c.hyper.beta1) * g;
  if (c.kind == OptimizerKind::kAdamax) {
    s1 = std::max(kept * s1, std::abs(g) + c.hyper.eps);
    p -= c.hyper.lr / (1 - std::pow(c.hyper.beta1, step)) * s0 / s1;
    return;
  }
  if (c.kind == OptimizerKind::kRAdam) {
    s1 = kept * s1 + (1 - kept) * g * g;
    const double correction = 1 - std::pow(kept, step);
    const double longest = 2 / (1 - kept) - 1;
    const double length = longest - 2 * step * std::pow(kept, step) / correction;
    const double rectified = std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
    const double adaptive = length > 5 ? rectified * std::sqrt(correction) / (std::sqrt(s1) + c.hyper.eps) : 1;
    p -= c.hyper.lr / (1 - std::pow(c.hyper.beta1, step)) * s0 * adaptive;
    return;
  }
  s1 = c.hyper.beta2 * s1 + (1 - c.hyper.beta2) * g * g;
  const double denominator = std::sqrt(s1) / std::sqrt(1 - std::pow(c.hyper.beta2, step)) + c.hyper.eps;
  p -= c.hyper.lr / (1 - std::pow(c.hyper.beta1, step)) * s0 / denominator;
}

template <typename T>
double get(const T& value) {
  if constexpr (std::is_same_v<T, std::uint16_t>) {  // bfloat16
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
void set(T& value, double x) {
  if constexpr (std::is_same_v<T, std::uint16_t>) {  // bfloat16; inputs are chosen to be exact
    value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 16);
  } else {
    value = static_cast<T>(x);
  }
}

/// Some steps of odd-sized vectors; the reference starts each step from the stored values, so that only one step's rounding counts.
template <typename T>
void compare(base::DType dtype, double tolerance) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> small(-64, 64);
  for (const Case& c : torch_cases()) {
    const std::size_t count = 1 + random() % 3000;
    std::vector<T> p(count);
    std::vector<T> g(count);
    std::vector<T> s0(count);
    std::vector<T> s1(count);
    for (T& x : p) {
      set(x, small(random) / 32.0);
    }
    for (const int step : {1, 2, 9}) {
      std::vector<double> expected;
      for (std::size_t k = 0; k < count; ++k) {
        set(g[k], small(random) / 64.0);
        double rp = get(p[k]);
        double r0 = get(s0[k]);
        double r1 = get(s1[k]);
        reference(c, step, 0.5, get(g[k]), rp, r0, r1);
        expected.insert(expected.end(), {rp, r0, r1});
      }
      update(c.kind, dtype, c.hyper, step, 0.5, count, reinterpret_cast<std::byte*>(p.data()), reinterpret_cast<const std::byte*>(g.data()),
             reinterpret_cast<std::byte*>(s0.data()), reinterpret_cast<std::byte*>(s1.data()));
      for (std::size_t k = 0; k < count; ++k) {
        ASSERT_NEAR(get(p[k]), expected[3 * k], tolerance * std::max(1.0, std::abs(expected[3 * k])));
        ASSERT_NEAR(get(s0[k]), expected[3 * k + 1], tolerance * std::max(1.0, std::abs(expected[3 * k + 1])));
        ASSERT_NEAR(get(s1[k]), expected[3 * k + 2], tolerance * std::max(1.0, std::abs(expected[3 * k + 2])));
      }
    }
  }
}

TEST(Optimizer, FollowsTheFormulasInFloat64) { compare<double>(base::DType::kFloat64, 1e-14); }
TEST(Optimizer, FollowsTheFormulasInFloat32) { compare<float>(base::DType::kFloat32, 1e-6); }
TEST(Optimizer, RoundsBfloat16OncePerStep) { compare<std::uint16_t>(base::DType::kBFloat16, 0.0040); }
TEST(Optimizer, RoundsFloat16OncePerStep) { compare<_Float16>(base::DType::kFloat16, 0.0005); }

TEST(Optimizer, StateSlotsFollowTheKind) {
  EXPECT_EQ(num_state_slots(OptimizerKind::kNone, {}), 0);
  EXPECT_EQ(num_state_slots(OptimizerKind::kSgd, {}), 0);
  EXPECT_EQ(num_state_slots(OptimizerKind::kSgd, {.momentum = 0.9}), 1);
  EXPECT_EQ(num_state_slots(OptimizerKind::kAdamW, {}), 2);
  EXPECT_EQ(num_state_slots(OptimizerKind::kAdagrad, {}), 1);
  EXPECT_EQ(num_state_slots(OptimizerKind::kRmsProp, {}), 1);
  EXPECT_EQ(num_state_slots(OptimizerKind::kRmsProp, {.centered = true}), 2);
}

TEST(Optimizer, NoElementsTouchNoMemory) {
  update(OptimizerKind::kSgd, base::DType::kFloat32, {.lr = 1}, 1, 1.0, 0, nullptr, nullptr, nullptr, nullptr);
}

}  // namespace
}  // namespace maypole::pipeline
