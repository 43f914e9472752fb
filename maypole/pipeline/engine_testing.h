// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the engine's tests share: engines of several ranks in one process, and a model of two parameters.

#include "maypole/base/test_seed.h"
#include "maypole/pipeline/engine.h"
#include "maypole/pipeline/fake_communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace maypole::pipeline {

inline std::string text(const absl::Status& status) { return status.ToString(); }

using Body = std::function<void(Engine& engine, int rank)>;

/// Runs `body` on every rank, each in a thread of its own with an engine of its own.
inline void run_ranks(int num_ranks, const EngineOptions& options, const Body& body,
                      std::vector<std::unique_ptr<comm::Communicator>> ring = {}) {
  if (ring.empty()) {
    ring = make_fake_ring(num_ranks, base::test_seed());
  }
  std::vector<std::jthread> threads;
  for (int r = 0; r < num_ranks; ++r) {
    threads.emplace_back([&body, &options, r, communicator = std::move(ring[static_cast<std::size_t>(r)])]() mutable {
      auto engine = Engine::create(std::move(communicator), options);
      ASSERT_TRUE(engine.ok());
      body(**engine, r);
    });
  }
}

inline const EngineOptions kPatient{.timeout = std::chrono::seconds(30)};

inline std::vector<ParameterSpec> two_parameters() {
  return {{"first.weight", 300, base::DType::kFloat32, 0}, {"second.weight", 200, base::DType::kFloat32, 0}};
}

inline ModelOptions options_for(std::string schedule, overlap::UpdateMode update = overlap::UpdateMode::kReplicated,
                                OptimizerKind kind = OptimizerKind::kSgd) {
  ModelOptions options;
  options.schedule = std::move(schedule);
  options.update = update;
  options.optimizer = kind;
  options.num_state_slots = kind == OptimizerKind::kSgd ? 0 : 2;
  options.fusion = {.block_bytes = 256, .group_bytes = 512, .first_group_bytes = 256};
  return options;
}

inline absl::Status go_backward(Engine& engine, ModelId model, float value) {
  for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {
    const std::vector<float> gradient(engine.gradient(model, i).size() / sizeof(float), value);
    if (absl::Status status = engine.gradient_ready(model, i, reinterpret_cast<const std::byte*>(gradient.data())); !status.ok()) {
      return status;
    }
  }
  return engine.end_backward(model);
}

inline const StepOptions kStep{.hyper = {{.lr = 0.5}}};

inline std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace maypole::pipeline
