// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/what_if.h"

#include "maypole/overlap/paper_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace maypole::cli {
namespace {

struct Asked {
  model::Profile profile = overlap::paper_profile("resnet50").value();
  overlap::Network network = overlap::named_network("10GbE").value();
  WhatIf answer = what_if(profile, network, {.workers = {1, 8}}).value();
};

const Asked& asked() {
  static const Asked asked_once;
  return asked_once;
}

TEST(WhatIf, HasARowForEverySchedule) {
  const WhatIf& answer = asked().answer;
  ASSERT_EQ(answer.rows.size(), 2 * overlap::simulated_schedules().size());
  for (const WhatIfRow& row : answer.rows) {
    EXPECT_LE(row.efficiency, 1 + 1e-9);
    EXPECT_NEAR(row.samples_per_s * row.choice.iteration.iteration_s, 64.0 * static_cast<double>(row.workers), 1e-6);
  }
}

TEST(WhatIf, FasterLinksAndMoreWorkersDoWhatTheyMust) {
  const WhatIf& answer = asked().answer;
  ASSERT_EQ(answer.links.size(), 3u);
  for (std::size_t i = 1; i < answer.links.size(); ++i) {
    EXPECT_LE(answer.links[i].iteration_s, answer.links[i - 1].iteration_s * (1 + 1e-3));
  }
  EXPECT_EQ(answer.growth.front().workers, 1u);
  EXPECT_NEAR(answer.growth.front().efficiency, 1, 1e-9);
  EXPECT_EQ(answer.growth.back().workers, 1024u);
  EXPECT_LT(answer.growth.back().efficiency, answer.growth[3].efficiency);
}

TEST(WhatIf, SaysFromWhereOnMoreWorkersDoNotPay) {
  overlap::Network slow = asked().network;
  slow.between_hosts.beta_s_per_byte *= 100;  // 100 Mbit/s: C is many times F + B
  const WhatIf answer = what_if(asked().profile, slow, {.workers = {2}}).value();
  EXPECT_EQ(answer.enough_workers, std::optional<std::size_t>(1));
  EXPECT_THAT(what_if_text(answer, asked().profile, slow), ::testing::HasSubstr("beyond 1 worker each"));
  slow.between_hosts = {0, 0};
  EXPECT_THAT(what_if_text(answer, asked().profile, slow), ::testing::HasSubstr("unlimited"));
  EXPECT_EQ(what_if(asked().profile, slow, {.workers = {2}}).value().enough_workers, std::nullopt);
}

TEST(WhatIf, ContentionIsSaidAndCosts) {
  overlap::Network shared = asked().network;
  shared.contention_s_per_byte = 1e-9;
  const WhatIf answer = what_if(asked().profile, shared, {.workers = {8}}).value();
  EXPECT_THAT(what_if_text(answer, asked().profile, shared), ::testing::HasSubstr("moving a gigabyte costs 1 s of computing"));
  EXPECT_EQ(nlohmann::json::parse(what_if_json(answer, asked().profile, shared)).at("contention_s_per_gb").get<double>(), 1);
  const WhatIf alone = what_if(asked().profile, asked().network, {.workers = {8}}).value();
  EXPECT_GT(answer.rows.back().choice.iteration.iteration_s, alone.rows.back().choice.iteration.iteration_s);
}

TEST(WhatIf, JsonAndPageAreWhole) {
  const auto parsed = nlohmann::json::parse(what_if_json(asked().answer, asked().profile, asked().network));
  EXPECT_EQ(parsed.at("rows").size(), 14u);
  EXPECT_TRUE(parsed.at("modelled").get<bool>());
  double bytes = 0;
  for (const auto& group : parsed.at("rows").back().at("groups")) {
    bytes += group.get<double>();
  }
  EXPECT_GE(bytes, 102.2e6);
  const std::string page = what_if_html(asked().answer, asked().profile, asked().network);
  EXPECT_THAT(page, ::testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, ::testing::HasSubstr("modelled, not measured"));
  EXPECT_THAT(page, ::testing::Not(::testing::HasSubstr("src=")));
  EXPECT_THAT(page, ::testing::Not(::testing::HasSubstr("nan")));
}

}  // namespace
}  // namespace maypole::cli
