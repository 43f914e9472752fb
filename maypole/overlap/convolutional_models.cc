// SPDX-License-Identifier: Apache-2.0

// ResNet-50, DenseNet-201 and Inception-v4 over images of 224 x 224. A convolution has no bias, its batch norm has scale and shift.

#include "maypole/overlap/paper_models.h"

#include <fmt/format.h>

#include <array>

namespace maypole::overlap {
namespace {

constexpr std::size_t kImage = 224;
constexpr std::size_t kClasses = 1000;
constexpr double kNormOperations = 4;  // per element

struct Plane {
  std::size_t channels = 3;
  std::size_t height = kImage;
  std::size_t width = kImage;
  [[nodiscard]] double area() const { return static_cast<double>(height * width); }
};

struct Window {
  std::size_t height = 1;
  std::size_t width = 1;
  std::size_t stride = 1;
  std::size_t pad_height = 0;
  std::size_t pad_width = 0;
};

constexpr Window square(std::size_t size, std::size_t stride = 1, std::size_t pad = 0) { return {size, size, stride, pad, pad}; }

Plane slide(const Plane& in, std::size_t channels, const Window& window) {
  return {channels, (in.height + 2 * window.pad_height - window.height) / window.stride + 1,
          (in.width + 2 * window.pad_width - window.width) / window.stride + 1};
}

/// Collects layers in forward order.
class Definition {
 public:
  Plane convolution(const std::string& name, const Plane& in, std::size_t channels, const Window& window) {
    const Plane out = slide(in, channels, window);
    const std::size_t weights = in.channels * channels * window.height * window.width;
    layers_.push_back({name, 2 * static_cast<double>(weights) * out.area(), {{"weight", weights}}});
    return out;
  }
  void norm(const std::string& name, const Plane& plane) {
    layers_.push_back({name,
                       kNormOperations * static_cast<double>(plane.channels) * plane.area(),
                       {{"weight", plane.channels}, {"bias", plane.channels}}});
  }
  /// Convolution and its norm.
  Plane unit(const std::string& name, const Plane& in, std::size_t channels, const Window& window) {
    const Plane out = convolution(name + ".conv", in, channels, window);
    norm(name + ".norm", out);
    return out;
  }
  void classifier(const std::string& name, std::size_t features) {
    layers_.push_back({name, 2.0 * static_cast<double>(features * kClasses), {{"weight", features * kClasses}, {"bias", kClasses}}});
  }
  std::vector<DefinedLayer> take() { return std::move(layers_); }

 private:
  std::vector<DefinedLayer> layers_;
};

// --- Inception-v4 ---

struct Step {
  std::size_t channels;
  Window window;
};
constexpr Window kRow7{1, 7, 1, 0, 3};
constexpr Window kColumn7{7, 1, 1, 3, 0};
constexpr Window kRow3{1, 3, 1, 0, 1};
constexpr Window kColumn3{3, 1, 1, 1, 0};

/// A chain of units; returns the last plane.
Plane branch(Definition& definition, const std::string& name, Plane plane, const std::vector<Step>& steps) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    plane = definition.unit(fmt::format("{}.{}", name, i), plane, steps[i].channels, steps[i].window);
  }
  return plane;
}

/// Branches side by side, joined along channels; `pooled`: channels that pooling passes on besides.
Plane inception(Definition& definition, const std::string& name, const Plane& in, const std::vector<std::vector<Step>>& branches,
                std::size_t pooled = 0) {
  Plane out = in;
  out.channels = pooled;
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const Plane end = branch(definition, fmt::format("{}.branch{}", name, i), in, branches[i]);
    out = {out.channels + end.channels, end.height, end.width};
  }
  return out;
}

Plane inception_stem(Definition& definition) {
  Plane plane = branch(definition, "stem", {}, {{32, square(3, 2)}, {32, square(3)}, {64, square(3, 1, 1)}});
  plane = inception(definition, "mixed3a", plane, {{{96, square(3, 2)}}}, plane.channels);
  plane = inception(definition, "mixed4a", plane,
                    {{{64, square(1)}, {96, square(3)}}, {{64, square(1)}, {64, kRow7}, {64, kColumn7}, {96, square(3)}}});
  return inception(definition, "mixed5a", plane, {{{192, square(3, 2)}}}, plane.channels);
}

/// The third kind of block splits two of its branches at the end.
Plane inception_c(Definition& definition, const std::string& name, const Plane& in) {
  const Plane direct = branch(definition, name + ".branch0", in, {{256, square(1)}});
  const Plane middle = branch(definition, name + ".branch1", in, {{384, square(1)}});
  branch(definition, name + ".branch1a", middle, {{256, kRow3}});
  branch(definition, name + ".branch1b", middle, {{256, kColumn3}});
  const Plane deep = branch(definition, name + ".branch2", in, {{384, square(1)}, {448, kColumn3}, {512, kRow3}});
  branch(definition, name + ".branch2a", deep, {{256, kRow3}});
  branch(definition, name + ".branch2b", deep, {{256, kColumn3}});
  branch(definition, name + ".branch3", in, {{256, square(1)}});
  return {in.channels, direct.height, direct.width};
}

}  // namespace

std::vector<DefinedLayer> define_resnet50() {
  constexpr std::array<std::size_t, 4> kBlocks = {3, 4, 6, 3};
  Definition definition;
  Plane plane = definition.unit("stem", {}, 64, square(7, 2, 3));
  plane = slide(plane, plane.channels, square(3, 2, 1));
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    const std::size_t width = 64U << stage;
    for (std::size_t block = 0; block < kBlocks[stage]; ++block) {
      const std::string name = fmt::format("stage{}.block{}", stage + 1, block);
      const std::size_t stride = stage > 0 && block == 0 ? 2 : 1;
      const Plane narrow = definition.unit(name + ".1", plane, width, square(1));
      const Plane middle = definition.unit(name + ".2", narrow, width, square(3, stride, 1));
      const Plane out = definition.unit(name + ".3", middle, 4 * width, square(1));
      if (block == 0) {
        definition.unit(name + ".shortcut", plane, 4 * width, square(1, stride));
      }
      plane = out;
    }
  }
  definition.classifier("classifier", plane.channels);
  return definition.take();
}

std::vector<DefinedLayer> define_densenet201() {
  constexpr std::array<std::size_t, 4> kBlocks = {6, 12, 48, 32};
  constexpr std::size_t kGrowth = 32;
  Definition definition;
  Plane plane = definition.unit("stem", {}, 64, square(7, 2, 3));
  plane = slide(plane, plane.channels, square(3, 2, 1));
  for (std::size_t block = 0; block < kBlocks.size(); ++block) {
    for (std::size_t i = 0; i < kBlocks[block]; ++i) {
      const std::string name = fmt::format("block{}.layer{}", block + 1, i + 1);
      definition.norm(name + ".norm1", plane);
      const Plane narrow = definition.convolution(name + ".conv1", plane, 4 * kGrowth, square(1));
      definition.norm(name + ".norm2", narrow);
      definition.convolution(name + ".conv2", narrow, kGrowth, square(3, 1, 1));
      plane.channels += kGrowth;
    }
    if (block + 1 < kBlocks.size()) {
      const std::string name = fmt::format("transition{}", block + 1);
      definition.norm(name + ".norm", plane);
      plane = definition.convolution(name + ".conv", plane, plane.channels / 2, square(1));
      plane = slide(plane, plane.channels, square(2, 2));
    }
  }
  definition.norm("norm5", plane);
  definition.classifier("classifier", plane.channels);
  return definition.take();
}

std::vector<DefinedLayer> define_inceptionv4() {
  Definition definition;
  Plane plane = inception_stem(definition);
  for (int i = 0; i < 4; ++i) {
    plane = inception(definition, fmt::format("a{}", i), plane,
                      {{{96, square(1)}},
                       {{64, square(1)}, {96, square(3, 1, 1)}},
                       {{64, square(1)}, {96, square(3, 1, 1)}, {96, square(3, 1, 1)}},
                       {{96, square(1)}}});
  }
  plane = inception(definition, "reduction_a", plane,
                    {{{384, square(3, 2)}}, {{192, square(1)}, {224, square(3, 1, 1)}, {256, square(3, 2)}}}, plane.channels);
  for (int i = 0; i < 7; ++i) {
    plane = inception(definition, fmt::format("b{}", i), plane,
                      {{{384, square(1)}},
                       {{192, square(1)}, {224, kRow7}, {256, kColumn7}},
                       {{192, square(1)}, {192, kColumn7}, {224, kRow7}, {224, kColumn7}, {256, kRow7}},
                       {{128, square(1)}}});
  }
  plane = inception(definition, "reduction_b", plane,
                    {{{192, square(1)}, {192, square(3, 2)}}, {{256, square(1)}, {256, kRow7}, {320, kColumn7}, {320, square(3, 2)}}},
                    plane.channels);
  for (int i = 0; i < 3; ++i) {
    plane = inception_c(definition, fmt::format("c{}", i), plane);
  }
  definition.classifier("classifier", plane.channels);
  return definition.take();
}

}  // namespace maypole::overlap
