// SPDX-License-Identifier: Apache-2.0
#pragma once

// Profiles of the five models that DeAR is evaluated on, from their definitions: every tensor with its shape, in forward order. Times
// are modelled, not measured: the forward of a layer takes its floating-point operations at a stated rate of one GPU, its backward twice
// that. The rate is the one at which one GPU of DeAR's authors trains the model (github.com/HKBU-HPML/ddl-benchmarks, 2020: ResNet-50
// 253.1, BERT-Base 212.8, BERT-Large 49 samples a second); DenseNet-201 and Inception-v4, for which there is no such figure, take
// ResNet-50's.

#include "maypole/model/profile.h"

#include <absl/status/statusor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::overlap {

/// resnet50, densenet201, inceptionv4, bert-base, bert-large.
[[nodiscard]] std::vector<std::string> paper_model_names();
/// Errors list the names there are.
[[nodiscard]] absl::StatusOr<model::Profile> paper_profile(std::string_view name);

/// A layer of a definition: what it computes per sample, and its tensors.
struct DefinedLayer {
  std::string name;
  double forward_flops = 0;
  struct Tensor {
    std::string name;
    std::size_t elements = 0;
  };
  std::vector<Tensor> tensors;
};

// Layers in forward order; only modules that own parameters are layers.
[[nodiscard]] std::vector<DefinedLayer> define_resnet50();
[[nodiscard]] std::vector<DefinedLayer> define_densenet201();
[[nodiscard]] std::vector<DefinedLayer> define_inceptionv4();
struct BertSize {
  std::size_t layers = 12;
  std::size_t hidden = 768;
};
/// Pre-training: masked words (decoder tied to the word embedding) and the next sentence; 64 tokens a sample.
[[nodiscard]] std::vector<DefinedLayer> define_bert(const BertSize& size);

}  // namespace maypole::overlap
