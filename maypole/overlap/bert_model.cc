// SPDX-License-Identifier: Apache-2.0
#include "maypole/overlap/paper_models.h"

#include <fmt/format.h>

namespace maypole::overlap {
namespace {

constexpr double kTokens = 64;
constexpr std::size_t kVocabulary = 30528;  // padded to a multiple of 8
constexpr std::size_t kPositions = 512;
constexpr double kNormOperations = 8;  // per element

DefinedLayer dense(std::string name, std::size_t in, std::size_t out, double rows = kTokens) {
  return {std::move(name), 2 * rows * static_cast<double>(in * out), {{"weight", in * out}, {"bias", out}}};
}

DefinedLayer norm(std::string name, std::size_t width) {
  return {std::move(name), kNormOperations * kTokens * static_cast<double>(width), {{"weight", width}, {"bias", width}}};
}

DefinedLayer embedding(std::string name, std::size_t rows, std::size_t width) {
  return {std::move(name), kTokens * static_cast<double>(width), {{"weight", rows * width}}};
}

}  // namespace

std::vector<DefinedLayer> define_bert(const BertSize& size) {
  const std::size_t h = size.hidden;
  std::vector<DefinedLayer> layers = {embedding("embeddings.word", kVocabulary, h), embedding("embeddings.position", kPositions, h),
                                      embedding("embeddings.token_type", 2, h), norm("embeddings.norm", h)};
  for (std::size_t i = 0; i < size.layers; ++i) {
    const std::string prefix = fmt::format("encoder.{}.", i);
    for (const char* part : {"query", "key", "value"}) {
      layers.push_back(dense(prefix + part, h, h));
    }
    DefinedLayer out = dense(prefix + "attention_output", h, h);
    out.forward_flops += 2 * 2 * kTokens * kTokens * static_cast<double>(h);  // scores and their sums of values, all heads
    layers.push_back(std::move(out));
    layers.push_back(norm(prefix + "attention_norm", h));
    layers.push_back(dense(prefix + "intermediate", h, 4 * h));
    layers.push_back(dense(prefix + "output", 4 * h, h));
    layers.push_back(norm(prefix + "output_norm", h));
  }
  layers.push_back(dense("pooler", h, h, 1));
  layers.push_back(dense("predictions.transform", h, h));
  layers.push_back(norm("predictions.norm", h));
  // The decoder's weight is the word embedding's: its own is the bias.
  layers.push_back({"predictions.decoder", 2 * kTokens * static_cast<double>(h * kVocabulary), {{"bias", kVocabulary}}});
  layers.push_back(dense("next_sentence", h, 2, 1));
  return layers;
}

}  // namespace maypole::overlap
