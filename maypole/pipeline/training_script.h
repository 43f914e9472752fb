// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a made-up training loop, known beforehand, that P ranks run through an engine and that one process computes without one.

#include "maypole/pipeline/engine.h"

#include <optional>
#include <string>
#include <vector>

namespace maypole::pipeline {

/// What happens to one model in one step, the same on every rank.
struct StepScript {
  int rounds = 1;  // backwards before step(); 0: none
  bool only_rank_0_goes_backward = false;
  bool discard_first = false;  // a backward whose gradients zero_grad() drops
  bool skip = false;
  std::optional<double> clip = {};  // to this global norm
  double norm_type = 2;
  bool synchronize = false;
  bool edit = false;               // after synchronize: double gradient 0, remove gradient 1, set gradient 2 to a half
  bool two_contributions = false;  // parameter 3 gets its gradient in two calls
  double lr = 0.1;
  std::optional<overlap::FusionOptions> regroup = {};  // other groups from this step on
};

struct ModelScript {
  std::vector<ParameterSpec> parameters;
  ModelOptions options;
  std::vector<Hyperparameters> hyper;  // per param group; lr comes from the step, times the group's own
  std::vector<StepScript> steps;
};

/// A made-up gradient element, and whether the rank has a gradient for the parameter at all in that round.
[[nodiscard]] double gradient_value(std::size_t model, std::size_t step, int round, int rank, std::size_t parameter, std::size_t element);
[[nodiscard]] bool has_gradient(std::size_t model, std::size_t step, int round, int rank, std::size_t parameter);
[[nodiscard]] double initial_value(std::size_t model, std::size_t parameter, std::size_t element);

[[nodiscard]] double read_element(base::DType dtype, const std::byte* data, std::size_t k);
void write_element(base::DType dtype, std::byte* data, std::size_t k, double value);

/// What a single process computes: parameters before every step and after the last one, norms returned by clipping.
struct Expected {
  std::vector<std::vector<std::vector<double>>> parameters;  // [step][parameter][element]
  std::vector<double> norms;                                 // [step]; 0 where nothing is clipped
  std::vector<std::int64_t> update_counts;                   // [parameter], at the end
};
[[nodiscard]] Expected compute_alone(const ModelScript& script, std::size_t model, int num_ranks);

/// Runs the scripts of all models through the engine, interleaved as a GAN does, and compares every parameter at every use.
/// Returns the first difference or error as text; empty if there is none.
[[nodiscard]] std::string train(Engine& engine, const std::vector<ModelScript>& scripts, const std::vector<Expected>& expected);

}  // namespace maypole::pipeline
