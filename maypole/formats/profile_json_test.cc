// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/profile_json.h"

#include "maypole/model/status_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::formats {
namespace {

using model::FailsWith;

model::Profile small() {
  model::Profile profile;
  profile.model = "a \"quoted\" net";
  profile.batch = 8;
  profile.source = "this test";
  profile.update_s = 0.1;
  profile.ring = model::MeasuredRing{2, 1e-4, 1.0 / 3e9};
  profile.layers = {{"one", {0.1, 0.01}, {0.2, 0.02}}, {"two", {1.0 / 3, 0}, {0.5, 0}}};
  profile.tensors = {{"one.weight", 0, 100, base::DType::kFloat32}, {"two.weight", 1, 7, base::DType::kBFloat16}};
  return profile;
}

/// The text of small() with `from` replaced.
std::string edited(std::string_view from, std::string_view to) {
  std::string text = profile_json(small());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProfileJson, ComesBackWithTheSameBits) {
  const auto result = parse_profile(profile_json(small()), "p.json");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, small());
}

TEST(ProfileJson, NamesFileAndFieldOfWhatIsWrong) {
  const auto error_of = [](std::string_view from, std::string_view to) { return parse_profile(edited(from, to), "p.json"); };
  EXPECT_THAT(error_of("\"version\": 1", "\"version\": 2"), FailsWith("p.json:1: version: this program reads version 1, the file has 2"));
  EXPECT_THAT(error_of("\"forward_s\": 0.1", "\"forward_s\": -0.1"),
              FailsWith("p.json: layers[0].forward_s: the time of layer 'one' is -0.1"));
  EXPECT_THAT(error_of("\"backward_s\": 0.5, ", ""), FailsWith("p.json:6: layers[1].backward_s: is missing"));
  EXPECT_THAT(error_of("\"layer\": \"two\"", "\"layer\": \"three\""),
              FailsWith("p.json:9: tensors[1].layer: no layer owns the tensor 'two.weight': there is no layer 'three'"));
  EXPECT_THAT(error_of("\"name\": \"two\"", "\"name\": \"one\""), FailsWith("p.json:6: layers[1].name: layer 'one' is there twice"));
  EXPECT_THAT(error_of("bfloat16", "int4"), FailsWith("p.json:9: tensors[1].dtype: 'int4' is not one of float32"));
  EXPECT_THAT(error_of("\"batch\"", "\"batches\""), FailsWith("p.json: batch: is missing"));
  EXPECT_THAT(error_of("\"workers\": 2", "\"workers\": 0"), FailsWith("p.json:3: ring.workers"));
}

TEST(ProfileJson, AFileThatIsCutOffIsOneLineWhereverItEnds) {
  const std::string text = profile_json(small());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    const auto result = parse_profile(text.substr(0, length), "p.json");
    ASSERT_FALSE(result.ok()) << length;
    const std::string sentence = base::message(result.status());
    EXPECT_THAT(sentence, ::testing::StartsWith("p.json")) << length;
    EXPECT_THAT(sentence, ::testing::Not(::testing::HasSubstr("\n"))) << length;
  }
}

}  // namespace
}  // namespace maypole::formats
