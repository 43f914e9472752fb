// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/training_script.h"

#include "maypole/pipeline/half.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace maypole::pipeline {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t place(std::size_t model, std::size_t step, int round, int rank, std::size_t parameter) {
  return mix(mix(mix(mix(model * 1000 + step) + static_cast<std::uint64_t>(round)) + static_cast<std::uint64_t>(rank)) + parameter);
}

Hyperparameters hyper_of(const ModelScript& script, std::size_t step, std::size_t group) {
  Hyperparameters hyper = script.hyper[group];
  hyper.lr *= script.steps[step].lr;
  return hyper;
}

constexpr int kDiscardedRound = 100;

}  // namespace

double gradient_value(std::size_t model, std::size_t step, int round, int rank, std::size_t parameter, std::size_t element) {
  const std::uint64_t bits = mix(place(model, step, round, rank, parameter) + element);
  return static_cast<double>(static_cast<std::int64_t>(bits % 2001) - 1000) / 1024.0;
}

bool has_gradient(std::size_t model, std::size_t step, int round, int rank, std::size_t parameter) {
  switch (parameter % 5) {
    case 1:
      return false;  // frozen in effect
    case 2:
      return mix(place(model, step, round, rank, parameter)) % 2 == 0;  // depends on the rank
    case 4:
      return step % 3 != 0;
    default:
      return true;
  }
}

double initial_value(std::size_t model, std::size_t parameter, std::size_t element) {
  return static_cast<double>(mix(model * 77 + parameter * 13 + mix(element)) % 512) / 256.0 - 1.0;
}

double read_element(base::DType dtype, const std::byte* data, std::size_t k) {
  switch (dtype) {
    case base::DType::kFloat32:
      return reinterpret_cast<const float*>(data)[k];
    case base::DType::kFloat64:
      return reinterpret_cast<const double*>(data)[k];
    case base::DType::kBFloat16:
      return widen(reinterpret_cast<const BFloat16*>(data)[k]);
    case base::DType::kFloat16:
      return widen(reinterpret_cast<const _Float16*>(data)[k]);
    case base::DType::kByte:
      break;
  }
  return 0;
}

void write_element(base::DType dtype, std::byte* data, std::size_t k, double value) {
  switch (dtype) {
    case base::DType::kFloat32:
      reinterpret_cast<float*>(data)[k] = static_cast<float>(value);
      break;
    case base::DType::kFloat64:
      reinterpret_cast<double*>(data)[k] = value;
      break;
    case base::DType::kBFloat16:
      narrow(static_cast<float>(value), reinterpret_cast<BFloat16*>(data)[k]);
      break;
    case base::DType::kFloat16:
      narrow(static_cast<float>(value), reinterpret_cast<_Float16*>(data)[k]);
      break;
    case base::DType::kByte:
      break;
  }
}

// --- one process ---

namespace {

/// The average over ranks, summed over rounds, in double.
struct Averages {
  std::vector<std::vector<double>> gradients;
  std::vector<bool> used;
};

bool goes_backward(const StepScript& step, int rank) { return step.rounds > 0 && (rank == 0 || !step.only_rank_0_goes_backward); }

Averages average(const ModelScript& script, std::size_t model, std::size_t step, int num_ranks) {
  Averages result;
  for (std::size_t i = 0; i < script.parameters.size(); ++i) {
    std::vector<double> gradient(script.parameters[i].count);
    bool used = false;
    for (int round = 0; round < script.steps[step].rounds; ++round) {
      for (int rank = 0; rank < num_ranks; ++rank) {
        if (!goes_backward(script.steps[step], rank) || !has_gradient(model, step, round, rank, i)) {
          continue;
        }
        used = true;
        for (std::size_t e = 0; e < gradient.size(); ++e) {
          gradient[e] += gradient_value(model, step, round, rank, i, e) / num_ranks;
        }
      }
    }
    result.gradients.push_back(std::move(gradient));
    result.used.push_back(used);
  }
  return result;
}

double norm_of(const Averages& averages, double type) {
  double total = 0;
  for (std::size_t i = 0; i < averages.gradients.size(); ++i) {
    for (const double g : averages.gradients[i]) {
      const double x = averages.used[i] ? std::abs(g) : 0;
      total = std::isinf(type) ? std::max(total, x) : total + std::pow(x, type);
    }
  }
  return std::isinf(type) ? total : std::pow(total, 1 / type);
}

void edit(Averages& averages) {
  for (double& g : averages.gradients[0]) {
    g *= 2;
  }
  averages.used[1] = false;
  averages.used[2] = true;
  std::ranges::fill(averages.gradients[2], 0.5);
}

}  // namespace

Expected compute_alone(const ModelScript& script, std::size_t model, int num_ranks) {
  Expected expected;
  const std::size_t num_parameters = script.parameters.size();
  std::vector<std::vector<double>> parameters;
  for (std::size_t i = 0; i < num_parameters; ++i) {
    parameters.emplace_back();
    for (std::size_t e = 0; e < script.parameters[i].count; ++e) {
      parameters.back().push_back(initial_value(model, i, e));
    }
  }
  std::vector<std::vector<double>> state0 = parameters;
  for (auto& state : state0) {
    std::ranges::fill(state, 0.0);
  }
  std::vector<std::vector<double>> state1 = state0;
  expected.update_counts.assign(num_parameters, 0);
  for (std::size_t s = 0; s < script.steps.size(); ++s) {
    const StepScript& step = script.steps[s];
    expected.parameters.push_back(parameters);
    expected.norms.push_back(0);
    Averages averages = average(script, model, s, num_ranks);
    if (step.edit) {
      edit(averages);
    }
    double scale = 1;
    if (step.clip.has_value()) {
      expected.norms.back() = norm_of(averages, step.norm_type);
      scale = std::min(1.0, *step.clip / (expected.norms.back() + 1e-6));
    }
    for (std::size_t i = 0; !step.skip && i < num_parameters; ++i) {
      if (averages.used[i]) {
        update(script.options.optimizer, base::DType::kFloat64, hyper_of(script, s, script.parameters[i].param_group),
               ++expected.update_counts[i], scale, parameters[i].size(), reinterpret_cast<std::byte*>(parameters[i].data()),
               reinterpret_cast<const std::byte*>(averages.gradients[i].data()), reinterpret_cast<std::byte*>(state0[i].data()),
               reinterpret_cast<std::byte*>(state1[i].data()));
      }
    }
  }
  expected.parameters.push_back(parameters);
  return expected;
}

// --- one of many ---

namespace {

class Trainer {
 public:
  Trainer(Engine& engine, const ModelScript& script, const Expected& expected, std::size_t model)
      : engine_(engine), script_(script), expected_(expected), model_(model), rank_(engine.communicator().rank()) {}

  std::string add() {
    absl::StatusOr<ModelId> id = engine_.add_model(script_.parameters, script_.options);
    if (!id.ok()) {
      return base_text(id.status());
    }
    id_ = *id;
    for (std::size_t i = 0; i < script_.parameters.size(); ++i) {
      for (std::size_t e = 0; e < script_.parameters[i].count; ++e) {
        write_element(script_.parameters[i].dtype, engine_.parameter(id_, i).data(), e, initial_value(model_, i, e));
      }
    }
    return "";
  }

  /// Forward, then everything up to and including step().
  std::string run_step(std::size_t s) {
    const StepScript& step = script_.steps[s];
    if (step.regroup) {
      if (absl::Status status = engine_.regroup(id_, *step.regroup); !status.ok()) {
        return base_text(status);
      }
    }
    engine_.mark_forward(id_);
    if (std::string text = check_parameters(s, /*all=*/s % 2 == 0); !text.empty()) {
      return text;
    }
    if (step.discard_first) {
      if (std::string text = backward(s, kDiscardedRound); !text.empty()) {
        return text;
      }
      if (absl::Status status = engine_.discard_gradients(id_); !status.ok()) {
        return base_text(status);
      }
    }
    for (int round = 0; round < step.rounds; ++round) {
      if (std::string text = backward(s, round); goes_backward(step, rank_) && !text.empty()) {
        return text;
      }
    }
    if (std::string text = check_parameters(s, true); !text.empty()) {
      return "before step(): " + text;
    }
    if (std::string text = handle_gradients(s); !text.empty()) {
      return text;
    }
    StepOptions options;
    for (std::size_t group = 0; group < script_.hyper.size(); ++group) {
      options.hyper.push_back(hyper_of(script_, s, group));
    }
    options.skip = step.skip;
    return base_text(engine_.step(id_, options));
  }

  std::string finish() {
    if (absl::Status status = engine_.flush(id_); !status.ok()) {
      return base_text(status);
    }
    for (std::size_t i = 0; i < script_.parameters.size(); ++i) {
      if (engine_.update_count(id_, i) != expected_.update_counts[i]) {
        return fmt::format("parameter {} had {} updates, not {}", i, engine_.update_count(id_, i), expected_.update_counts[i]);
      }
    }
    return check_parameters(script_.steps.size(), true);
  }

 private:
  static std::string base_text(const absl::Status& status) { return status.ok() ? "" : status.ToString(); }

  double tolerance(std::size_t i) const {
    switch (script_.parameters[i].dtype) {
      case base::DType::kFloat64:  // clipping carries the rounding of float32 tensors over
        return std::ranges::all_of(script_.parameters, [](const ParameterSpec& p) { return p.dtype == base::DType::kFloat64; }) ? 1e-11
                                                                                                                                : 1e-6;
      case base::DType::kFloat32:
        return script_.options.compress_bfloat16 ? 0.05 : 1e-4;
      case base::DType::kBFloat16:
      case base::DType::kFloat16:
      case base::DType::kByte:
        break;
    }
    return 0.1;
  }

  std::string check_parameters(std::size_t s, bool all) {
    for (std::size_t i = 0; i < script_.parameters.size(); ++i) {
      if (!all && has_gradient(model_, s, 0, rank_, i + 2)) {
        continue;  // not used in this forward
      }
      if (absl::Status status = engine_.before_use(id_, i); !status.ok()) {
        return base_text(status);
      }
      if (engine_.in_motion(id_, i)) {
        return fmt::format("parameter {} is in motion after before_use()", i);
      }
      for (std::size_t e = 0; e < script_.parameters[i].count; ++e) {
        const double here = read_element(script_.parameters[i].dtype, engine_.parameter(id_, i).data(), e);
        const double there = expected_.parameters[s][i][e];
        if (!(std::abs(here - there) <= tolerance(i) * std::max(1.0, std::abs(there)))) {
          return fmt::format("rank {} model {} step {} parameter {} element {}: {} instead of {}", rank_, model_, s, i, e, here, there);
        }
      }
    }
    return "";
  }

  std::string backward(std::size_t s, int round) {
    const StepScript& step = script_.steps[s];
    if (round != kDiscardedRound && !goes_backward(step, rank_)) {
      return "";
    }
    engine_.mark_backward(id_);
    for (std::size_t i = script_.parameters.size(); i-- > 0;) {
      if (!has_gradient(model_, s, round, rank_, i)) {
        continue;
      }
      const base::DType dtype = script_.parameters[i].dtype;
      const std::size_t size = script_.parameters[i].count * base::size_of(dtype);
      std::vector<std::byte> source(size);
      for (std::size_t e = 0; e < script_.parameters[i].count; ++e) {
        write_element(dtype, source.data(), e, gradient_value(model_, s, round, rank_, i, e));
      }
      if (step.two_contributions && i == 3) {
        std::vector<std::byte> quarter(size);
        for (std::size_t e = 0; e < script_.parameters[i].count; ++e) {
          const double value = read_element(dtype, source.data(), e);
          write_element(dtype, quarter.data(), e, value / 4);
          write_element(dtype, source.data(), e, value * 3 / 4);
        }
        if (absl::Status status = engine_.gradient_ready(id_, i, quarter.data()); !status.ok()) {
          return base_text(status);
        }
      }
      if (absl::Status status = engine_.gradient_ready(id_, i, source.data()); !status.ok()) {
        return base_text(status);
      }
    }
    return base_text(engine_.end_backward(id_));
  }

  std::string handle_gradients(std::size_t s) {
    const StepScript& step = script_.steps[s];
    if (step.synchronize || step.edit) {
      if (absl::Status status = engine_.synchronize(id_); !status.ok()) {
        return base_text(status);
      }
      Averages averages = average(script_, model_, s, engine_.communicator().num_ranks());
      if (step.edit) {
        edit_gradients(averages);
      }
      for (std::size_t i = 0; i < script_.parameters.size(); ++i) {
        if (engine_.used(id_, i) != averages.used[i]) {
          return fmt::format("step {} parameter {}: used is {}", s, i, engine_.used(id_, i));
        }
        for (std::size_t e = 0; averages.used[i] && e < script_.parameters[i].count; ++e) {
          const double here = read_element(script_.parameters[i].dtype, engine_.gradient(id_, i).data(), e);
          if (!(std::abs(here - averages.gradients[i][e]) <= tolerance(i))) {
            return fmt::format("rank {} model {} step {} gradient {} element {}: {} instead of {}", rank_, model_, s, i, e, here,
                               averages.gradients[i][e]);
          }
        }
      }
    }
    if (step.clip.has_value()) {
      absl::StatusOr<double> norm = engine_.gradient_norm(id_, step.norm_type);
      if (!norm.ok()) {
        return base_text(norm.status());
      }
      if (!(std::abs(*norm - expected_.norms[s]) <= std::max(1e-5, tolerance(0)) * expected_.norms[s])) {  // some tensors are float32
        return fmt::format("step {}: norm {} instead of {}", s, *norm, expected_.norms[s]);
      }
      engine_.scale_gradients(id_, std::min(1.0, *step.clip / (*norm + 1e-6)));
    }
    return "";
  }

  void edit_gradients(Averages& averages) {
    edit(averages);
    for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
      const base::DType dtype = script_.parameters[i].dtype;
      std::byte* data = engine_.gradient(id_, i).data();
      for (std::size_t e = 0; e < script_.parameters[i].count; ++e) {
        write_element(dtype, data, e, i == 0 ? 2 * read_element(dtype, data, e) : 0.5);
      }
    }
    engine_.set_used(id_, 1, false);
    engine_.set_used(id_, 2, true);
  }

  Engine& engine_;
  const ModelScript& script_;
  const Expected& expected_;
  const std::size_t model_;
  const int rank_;
  ModelId id_ = 0;
};

}  // namespace

std::string train(Engine& engine, const std::vector<ModelScript>& scripts, const std::vector<Expected>& expected) {
  std::vector<Trainer> trainers;
  std::size_t steps = 0;
  for (std::size_t m = 0; m < scripts.size(); ++m) {
    trainers.emplace_back(engine, scripts[m], expected[m], m);
    steps = std::max(steps, scripts[m].steps.size());
    if (std::string text = trainers.back().add(); !text.empty()) {
      return text;
    }
  }
  for (std::size_t s = 0; s < steps; ++s) {
    for (std::size_t m = 0; m < scripts.size(); ++m) {
      if (s < scripts[m].steps.size()) {
        if (std::string text = trainers[m].run_step(s); !text.empty()) {
          return fmt::format("step {}: {}", s, text);
        }
      }
    }
  }
  for (Trainer& trainer : trainers) {
    if (std::string text = trainer.finish(); !text.empty()) {
      return "at the end: " + text;
    }
  }
  return "";
}

}  // namespace maypole::pipeline
