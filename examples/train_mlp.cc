// SPDX-License-Identifier: Apache-2.0
//
// The C++ front end: trains a small network on Eigen through pipeline::Engine, no Python anywhere.
//
//     maypole run -n 2 -- build/train_mlp
//
// Two layers learn which of eight directions a noisy point of the plane lies in. Every worker has its own samples; gradients are
// averaged by the engine, which overlaps them with the rest of backward and with the next forward.

#include "maypole/base/status.h"
#include "maypole/comm/environment.h"
#include "maypole/comm/ring_communicator.h"
#include "maypole/pipeline/engine.h"

#include <fmt/format.h>
#include <Eigen/Core>

#include <cmath>
#include <cstdlib>
#include <numbers>
#include <random>
#include <span>
#include <vector>

namespace {

using Matrix = Eigen::MatrixXf;
using View = Eigen::Map<Matrix>;

constexpr int kInputs = 2, kHidden = 256, kClasses = 8, kBatch = 64, kSteps = 200;
enum Parameter : std::size_t { kWeight1, kBias1, kWeight2, kBias2 };
struct Shape {
  const char* name;
  int rows, columns;
};
constexpr Shape kShapes[] = {{"weight1", kHidden, kInputs}, {"bias1", kHidden, 1}, {"weight2", kClasses, kHidden}, {"bias2", kClasses, 1}};

void check(const absl::Status& status) {
  if (!status.ok()) {
    fmt::print(stderr, "train_mlp: {}\n", maypole::base::message(status));
    std::exit(1);
  }
}

template <typename T>
T value_of(absl::StatusOr<T> result) {
  check(result.status());
  return *std::move(result);
}

View view(std::span<std::byte> memory, std::size_t i) {
  return {reinterpret_cast<float*>(memory.data()), kShapes[i].rows, kShapes[i].columns};
}

/// Points [feature][sample] and their classes.
std::pair<Matrix, std::vector<int>> make_batch(std::mt19937& random) {
  std::uniform_real_distribution<float> angle(0, 2 * std::numbers::pi_v<float>);
  std::normal_distribution<float> noise(0, 0.05F);
  Matrix points(kInputs, kBatch);
  std::vector<int> classes(kBatch);
  for (int j = 0; j < kBatch; ++j) {
    const float a = angle(random);
    classes[static_cast<std::size_t>(j)] = static_cast<int>(a / (2 * std::numbers::pi_v<float>)*kClasses) % kClasses;
    points.col(j) << std::cos(a) + noise(random), std::sin(a) + noise(random);
  }
  return {points, classes};
}

/// Softmax of each column minus the one-hot target, over the batch; adds the mean cross-entropy to `loss`.
Matrix loss_gradient(const Matrix& logits, const std::vector<int>& classes, double& loss) {
  Matrix probability = (logits.rowwise() - logits.colwise().maxCoeff()).array().exp();
  probability.array().rowwise() /= probability.array().colwise().sum().eval();
  for (int j = 0; j < kBatch; ++j) {
    float& p = probability(classes[static_cast<std::size_t>(j)], j);
    loss -= std::log(std::max(p, 1e-20F)) / kBatch;
    p -= 1;
  }
  return probability / static_cast<float>(kBatch);
}

}  // namespace

int main() {
  const auto environment = value_of(maypole::comm::read_environment());
  const auto engine =
      value_of(maypole::pipeline::Engine::create(value_of(maypole::comm::create_ring_communicator(environment.connect)), {}));
  maypole::comm::Communicator& communicator = engine->communicator();

  std::vector<maypole::pipeline::ParameterSpec> parameters;
  for (const Shape& shape : kShapes) {
    parameters.push_back({.name = shape.name, .count = static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(shape.columns)});
  }
  maypole::pipeline::ModelOptions options;
  options.schedule = environment.schedule.value_or("weave");
  options.optimizer = maypole::pipeline::OptimizerKind::kAdamW;
  options.num_state_slots = 2;
  options.fusion = {.block_bytes = 1024,
                    .group_bytes = 4096,
                    .first_group_bytes = 1024};  // a tiny model: small groups, so that there is something to overlap
  const auto model = value_of(engine->add_model(parameters, options));
  const auto weight = [&](std::size_t i) { return view(engine->parameter(model, i), i); };

  std::mt19937 same(1);  // every rank begins with the same parameters
  for (std::size_t i : {kWeight1, kWeight2}) {
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(kShapes[i].columns)));
    weight(i) = Matrix::NullaryExpr(kShapes[i].rows, kShapes[i].columns, [&] { return normal(same); });
  }
  std::mt19937 own(100 + static_cast<unsigned>(communicator.rank()));
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto [points, classes] = make_batch(own);
    engine->mark_forward(model);
    const auto use = [&](std::size_t i) {
      check(engine->before_use(model, i));
      return weight(i);
    };
    const Matrix hidden = ((use(kWeight1) * points).colwise() + use(kBias1).col(0)).cwiseMax(0);
    const Matrix logits = (use(kWeight2) * hidden).colwise() + use(kBias2).col(0);
    engine->mark_backward(model);
    double loss = 0;
    const Matrix upper = loss_gradient(logits, classes, loss);
    const auto ready = [&](std::size_t i, const Matrix& gradient) {
      check(engine->gradient_ready(model, i, reinterpret_cast<const std::byte*>(gradient.data())));
    };
    ready(kBias2, upper.rowwise().sum());
    ready(kWeight2, upper * hidden.transpose());
    const Matrix lower = (weight(kWeight2).transpose() * upper).cwiseProduct((hidden.array() > 0).cast<float>().matrix());
    ready(kBias1, lower.rowwise().sum());
    ready(kWeight1, lower * points.transpose());
    check(engine->end_backward(model));
    check(engine->step(model, {.hyper = {{.lr = 3e-3, .weight_decay = 0.01}}}));
    (step == 0 ? first : last) = loss;
  }
  check(engine->flush(model));

  // All ranks must hold the same bits.
  bool agree = true;
  for (std::size_t i : {kWeight1, kBias1, kWeight2, kBias2}) {
    Matrix first_ranks = weight(i);
    check(communicator
              .broadcast(reinterpret_cast<std::byte*>(first_ranks.data()), static_cast<std::size_t>(first_ranks.size()) * sizeof(float), 0)
              .wait());
    agree = agree && first_ranks == weight(i);
  }
  fmt::print("rank {} of {}: loss {:.3f} -> {:.3f}, schedule {}; parameters {} rank 0's\n", communicator.rank(), communicator.num_ranks(),
             first, last, options.schedule, agree ? "equal" : "DIFFER FROM");
  check(engine->finalize());
  return agree && last < first / 2 ? 0 : 1;
}
