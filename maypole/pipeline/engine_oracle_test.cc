// SPDX-License-Identifier: Apache-2.0

// After any number of steps, parameters equal those of one process that has all gradients: for every schedule, update, optimizer and
// world size, whatever the timing.

#include "maypole/base/test_seed.h"
#include "maypole/comm/ring_communicator.h"
#include "maypole/pipeline/fake_communicator.h"
#include "maypole/pipeline/training_script.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <thread>

namespace maypole::pipeline {
namespace {

constexpr std::size_t kBlockBytes = 512;

using base::DType;
using overlap::UpdateMode;

/// Runs `scripts` on `num_ranks` threads; the first complaint of each rank, empty when all went well.
std::vector<std::string> run_ring(std::vector<std::unique_ptr<comm::Communicator>> ring, const std::vector<ModelScript>& scripts) {
  const int num_ranks = static_cast<int>(ring.size());
  std::vector<Expected> expected;
  for (std::size_t m = 0; m < scripts.size(); ++m) {
    expected.push_back(compute_alone(scripts[m], m, num_ranks));
  }
  std::vector<std::string> complaints(ring.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ring.size(); ++r) {
      threads.emplace_back([&, r, communicator = std::move(ring[r])]() mutable {
        auto engine = Engine::create(std::move(communicator), {.timeout = std::chrono::seconds(20), .timeline = true});
        if (!engine.ok()) {
          complaints[r] = engine.status().ToString();
          return;
        }
        complaints[r] = train(**engine, scripts, expected);
        if (const absl::Status end = complaints[r].empty() ? (*engine)->finalize() : absl::OkStatus(); !end.ok()) {
          complaints[r] = end.ToString();
        }
        if (!complaints[r].empty()) {
          (*engine)->communicator().abort(absl::CancelledError(complaints[r]));
        }
      });
    }
  }
  return complaints;
}

std::vector<ParameterSpec> odd_parameters(DType first, DType second) {
  return {{"conv.weight", 130, first, 0},  {"conv.bias", 7, first, 1},  {"norm.scale", 64, second, 0},  {"empty", 0, first, 0},
          {"wide.weight", 1000, first, 0}, {"wide.bias", 1, second, 1}, {"head.weight", 333, first, 0}, {"scalar", 1, first, 0},
          {"tail.weight", 90, second, 0},  {"tail.bias", 9, first, 1},  {"last", 257, first, 0}};
}

std::vector<StepScript> eventful_steps(std::mt19937& random, std::size_t count, bool sync) {
  std::vector<StepScript> steps(count);
  for (StepScript& step : steps) {
    step.lr = 0.02 + static_cast<double>(random() % 100) / 1000;
    if (random() % 3 == 0) {
      step.regroup = {.block_bytes = kBlockBytes, .group_bytes = 500 + random() % 4000, .first_group_bytes = 500 + random() % 2000};
    }
    switch (random() % 9) {
      case 0:
        step.rounds = 2 + static_cast<int>(random() % 2);
        break;
      case 1:
        step.skip = true;
        step.synchronize = random() % 2 == 0;
        break;
      case 2:
        step.clip = 0.5 + static_cast<double>(random() % 8);
        step.norm_type = random() % 3 == 0 ? std::numeric_limits<double>::infinity() : 1.0 + static_cast<double>(random() % 2);
        step.synchronize = random() % 3 == 0;
        break;
      case 3:
        step.discard_first = true;
        break;
      case 4:
        step.synchronize = true;
        step.rounds = static_cast<int>(random() % 3);
        break;
      case 5:
        step.edit = true;
        break;
      case 6:
        step.rounds = 0;
        break;
      case 7:
        step.only_rank_0_goes_backward = true;
        break;
      default:
        step.two_contributions = sync;
        break;
    }
  }
  return steps;
}

Hyperparameters hyper_for(OptimizerKind kind, int group) {
  Hyperparameters hyper;
  hyper.lr = group == 0 ? 1.0 : 0.3;
  hyper.weight_decay = group == 0 ? 0.01 : 0;
  if (kind == OptimizerKind::kSgd) {
    hyper.momentum = 0.9;
    hyper.nesterov = true;
  }
  hyper.eps = 1e-4;  // keeps the quotient of tiny numbers from magnifying rounding
  return hyper;
}

ModelScript make_script(std::string_view schedule, UpdateMode update, OptimizerKind kind, DType first, DType second, std::size_t num_steps,
                        std::mt19937& random) {
  ModelScript script;
  script.parameters = odd_parameters(first, second);
  script.options.schedule = schedule;
  script.options.update = update;
  script.options.optimizer = kind;
  script.options.num_state_slots = kind == OptimizerKind::kSgd ? 1 : 2;
  script.options.fusion = {.block_bytes = kBlockBytes, .group_bytes = 1500, .first_group_bytes = 600};
  script.hyper = {hyper_for(kind, 0), hyper_for(kind, 1)};
  script.steps = eventful_steps(random, num_steps, schedule == "sync");
  return script;
}

enum class RingKind { kFake, kSharedMemory, kStream, kMixed };

std::vector<std::unique_ptr<comm::Communicator>> make_ring(RingKind kind, int num_ranks, unsigned seed) {
  switch (kind) {
    case RingKind::kFake:
      break;
    case RingKind::kSharedMemory:
      return comm::make_inproc_ring(num_ranks, comm::InprocKind::kSharedMemory).value();
    case RingKind::kStream:
      return comm::make_inproc_ring(num_ranks, comm::InprocKind::kStream).value();
    case RingKind::kMixed:
      return comm::make_inproc_ring(num_ranks, comm::InprocKind::kMixed).value();
  }
  return make_fake_ring(num_ranks, seed);
}

struct OracleCase {
  RingKind ring = RingKind::kFake;
  std::string schedule;
  UpdateMode update = UpdateMode::kReplicated;
  OptimizerKind kind = OptimizerKind::kSgd;
  int num_ranks = 1;
};

/// All of them over the fake ring; one optimizer over the real ones.
std::vector<OracleCase> all_cases() {
  std::vector<OracleCase> cases;
  for (const RingKind ring : {RingKind::kFake, RingKind::kSharedMemory, RingKind::kStream, RingKind::kMixed}) {
    for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
      for (const UpdateMode update : {UpdateMode::kReplicated, UpdateMode::kSharded}) {
        for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
          const bool allowed = update == UpdateMode::kReplicated || overlap::make_schedule(schedule).value()->traits().allows_sharded;
          for (int num_ranks = 1; allowed && num_ranks <= 4; ++num_ranks) {
            if (ring == RingKind::kFake || kind == OptimizerKind::kAdamW) {
              cases.push_back({ring, schedule, update, kind, num_ranks});
            }
          }
        }
      }
    }
  }
  return cases;
}

class EngineOracle : public ::testing::TestWithParam<OracleCase> {};

TEST_P(EngineOracle, TrainsLikeOneProcessThatHasAllGradients) {
  const OracleCase& c = GetParam();
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  // Two models, as a GAN has; the second has two dtypes.
  const std::vector<ModelScript> scripts = {make_script(c.schedule, c.update, c.kind, DType::kFloat64, DType::kFloat64, 20, random),
                                            make_script(c.schedule, c.update, c.kind, DType::kFloat32, DType::kFloat64, 14, random)};
  for (const std::string& complaint : run_ring(make_ring(c.ring, c.num_ranks, seed), scripts)) {
    ASSERT_EQ(complaint, "");
  }
}

std::string name_of(const ::testing::TestParamInfo<OracleCase>& info) {
  static constexpr std::string_view kRings[] = {"Fake", "SharedMemory", "Stream", "Mixed"};
  static constexpr std::string_view kOptimizers[] = {"None", "Sgd", "Adam", "AdamW"};
  return fmt::format("{}Ring_{}_{}_{}_{}", kRings[static_cast<int>(info.param.ring)], info.param.schedule,
                     info.param.update == UpdateMode::kSharded ? "sharded" : "replicated", kOptimizers[static_cast<int>(info.param.kind)],
                     info.param.num_ranks);
}

INSTANTIATE_TEST_SUITE_P(All, EngineOracle, ::testing::ValuesIn(all_cases()), name_of);

TEST(EngineMixedModels, ModelsOfDifferentSchedulesShareOneEngine) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<ModelScript> scripts = {
      make_script("weave", UpdateMode::kSharded, OptimizerKind::kAdamW, DType::kFloat64, DType::kFloat64, 15, random),
      make_script("dear", UpdateMode::kReplicated, OptimizerKind::kSgd, DType::kFloat64, DType::kFloat32, 15, random),
      make_script("sync", UpdateMode::kReplicated, OptimizerKind::kAdam, DType::kFloat64, DType::kFloat64, 15, random),
      make_script("dear", UpdateMode::kSharded, OptimizerKind::kSgd, DType::kFloat32, DType::kFloat64, 15, random)};
  for (const std::string& complaint : run_ring(make_fake_ring(3, seed), scripts)) {
    ASSERT_EQ(complaint, "");
  }
}

TEST(EngineTuning, GroupsThatAreTunedWhateverTheScriptDoesChangeNoResult) {
  for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
    for (const UpdateMode update : {UpdateMode::kReplicated, UpdateMode::kSharded}) {
      if (update == UpdateMode::kSharded && !overlap::make_schedule(schedule).value()->traits().allows_sharded) {
        continue;
      }
      const auto seed = base::test_seed();
      SCOPED_TRACE(fmt::format("{} seed {}", schedule, seed));
      std::mt19937 random(seed);
      std::vector<ModelScript> scripts = {
          make_script(schedule, update, OptimizerKind::kAdamW, DType::kFloat64, DType::kFloat64, 62, random),
          make_script(schedule, update, OptimizerKind::kSgd, DType::kFloat64, DType::kFloat32, 45, random)};
      scripts[0].options.fusion_search = "auto";
      scripts[1].options.fusion_search = random() % 2 == 0 ? "plan" : "grid";
      for (const std::string& complaint : run_ring(make_fake_ring(2 + static_cast<int>(random() % 2), seed), scripts)) {
        ASSERT_EQ(complaint, "");
      }
    }
  }
}

TEST(EngineHalfPrecision, TrainsNearTheExactResult) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const UpdateMode update : {UpdateMode::kReplicated, UpdateMode::kSharded}) {
    ModelScript script = make_script("weave", update, OptimizerKind::kSgd, DType::kBFloat16, DType::kFloat16, 0, random);
    script.hyper[0].momentum = script.hyper[1].momentum = 0;
    script.hyper[0].nesterov = script.hyper[1].nesterov = false;
    script.options.num_state_slots = 0;
    script.steps.assign(3, StepScript{.lr = 0.05});
    for (const std::string& complaint : run_ring(make_fake_ring(2, seed), {script})) {
      ASSERT_EQ(complaint, "");
    }
  }
}

TEST(EngineCompression, TrainsNearTheExactResult) {
  const auto seed = base::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ModelScript script = make_script("weave", UpdateMode::kReplicated, OptimizerKind::kSgd, DType::kFloat32, DType::kFloat32, 0, random);
  script.options.compress_bfloat16 = true;
  script.steps.assign(5, StepScript{.clip = 3.0, .lr = 0.02});
  for (const std::string& complaint : run_ring(make_fake_ring(2, seed), {script})) {
    ASSERT_EQ(complaint, "");
  }
}

}  // namespace
}  // namespace maypole::pipeline
