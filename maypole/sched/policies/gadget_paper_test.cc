// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper.h"

#include "maypole/sched/policies/exact.h"
#include "maypole/sched/policies/exact_testing.h"
#include "maypole/sched/policies/gadget_paper_augmented_lp.h"
#include "maypole/sched/policies/gadget_paper_decomposition.h"
#include "maypole/sched/policies/gadget_paper_full_lp.h"
#include "maypole/sched/policies/gadget_paper_ring_selection.h"
#include "maypole/sched/sched_testing.h"
#include "maypole/sched/schedule_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace maypole::sched {
namespace {

using model::Cluster;
using model::Job;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kNoLimit = 1'000'000;

PaperRelaxation relax(const PaperSlot& slot) {
  Work work;
  return relax_paper_slot(slot, kNoLimit, work);
}

PaperAugmented augment(const PaperSlot& slot, const std::vector<int>& sizes) {
  Work work;
  return solve_augmented_lp(slot, sizes, kNoLimit, work);
}

TEST(PaperRelaxationTest, IsAFractionalKnapsackOnTheWholeClustersCapacity) {
  // 1 + 2 + 4 GPUs on links far too narrow for any ring: the relaxation does not see links. Linear utilities of 5, 3 and 1 a worker, at
  // most four workers each: 4 * 5 + 3 * 3.
  const Cluster cluster = tree_cluster({.racks = 1, .servers_per_rack = 7, .gpus = 1, .server_bandwidth = 0.1});
  std::vector<Job> jobs;
  for (const double weight : {5.0, 3.0, 1.0}) {
    jobs.push_back(elastic_job(cluster, "j" + std::to_string(jobs.size()), 1, 4));
    jobs.back().weight = weight;
    jobs.back().utility.kind = model::UtilityKind::kLinear;
    jobs.back().edge_bandwidth = {1};
  }
  const SlotProblem problem = problem_of(cluster, jobs);
  const PaperSlot slot = make_paper_slot(problem);
  EXPECT_NEAR(relax(slot).value, 4 * 5 + 3 * 3, 1e-9);
  EXPECT_NEAR(full_relaxation(slot), 4 * 5 + 3 * 3, 1e-6);
}

TEST(PaperRelaxationTest, EqualsTheWholeFormulationOnRandomSmallCases) {
  base::Rng rng(21);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const TinyCase tiny = random_tiny_case(rng);
    const SlotProblem problem = tiny.problem();
    const PaperSlot slot = make_paper_slot(problem);
    const double value = relax(slot).value;
    EXPECT_NEAR(value, full_relaxation(slot), 1e-6 * (1 + value));
    EXPECT_GE(value, best_by_enumeration(problem) - 1e-9);
  }
  for (int round = 0; round < 30; ++round) {  // several resources, servers that are not proportional
    SCOPED_TRACE(round);
    const model::Instance instance = random_instance(rng, 3, 4);
    if (instance.cluster.num_servers() > 5) {
      continue;
    }
    const SlotProblem problem = problem_of(instance.cluster, instance.jobs);
    const PaperSlot slot = make_paper_slot(problem);
    const double value = relax(slot).value;
    EXPECT_NEAR(value, full_relaxation(slot), 1e-6 * (1 + value));
  }
}

TEST(PaperRingSelectionTest, KeepsTheSizeWithTheLargestWeightedGain) {
  const Cluster cluster = flat_cluster({8});
  const std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 4), elastic_job(cluster, "b", 1, 4), elastic_job(cluster, "c", 1, 4)};
  const SlotProblem problem = problem_of(cluster, jobs);
  const PaperSlot slot = make_paper_slot(problem);
  PaperRelaxation relaxation;
  // sqrt: 1, 1.41, 1.73, 2. Job a: 0.6 * 1 < 0.4 * 2. Job b: one size only. Job c: not embedded.
  relaxation.sizes = {{0, 0.6, 0, 0, 0.4}, {0, 0, 0, 0.3, 0}, {0, 0, 0, 0, 0}};
  EXPECT_THAT(select_rings(slot, relaxation), ElementsAre(4, 3, 0));
}

TEST(PaperAugmentedTest, ColumnGenerationReachesTheOptimumOfTheWholeLayeredFormulation) {
  base::Rng rng(22);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const TinyCase tiny = random_tiny_case(rng);
    const SlotProblem problem = tiny.problem();
    const PaperSlot slot = make_paper_slot(problem);
    const PaperRelaxation relaxation = relax(slot);
    const std::vector<int> sizes = select_rings(slot, relaxation);
    const PaperAugmented short_form = augment(slot, sizes);
    const FullAugmented full = full_augmented_lp(slot, sizes);
    EXPECT_NEAR(short_form.value, full.value, 1e-6 * (1 + full.value));
    EXPECT_LE(full.value, relaxation.value * (1 + 1e-6) + 1e-9);
  }
}

// The mappings' weighted loads keep all capacities, and every one is a closed ring of the right size.
void expect_valid(const PaperSlot& slot, const std::vector<int>& sizes, const WeightedMappings& mappings) {
  const Cluster& cluster = slot.cluster();
  std::vector<double> servers(cluster.num_servers(), 0);
  std::vector<double> links(cluster.num_links(), 0);
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    for (const auto& [weight, embedding] : mappings[i]) {
      EXPECT_GT(weight, 0);
      ASSERT_EQ(embedding.workers(), sizes[i]);
      for (std::size_t k = 0; k < embedding.ring.size(); ++k) {
        servers[embedding.ring[k].index()] += weight * slot.jobs[i].demand[0];
        if (embedding.ring.size() == 1) {
          continue;
        }
        model::NodeId here = Cluster::node(embedding.ring[k]);
        for (const model::LinkId link : embedding.edges[k]) {
          EXPECT_EQ(cluster.link(link).from, here);
          here = cluster.link(link).to;
          links[link.index()] += weight * slot.jobs[i].bandwidth;
        }
        EXPECT_EQ(here, Cluster::node(embedding.ring[(k + 1) % embedding.ring.size()]));
      }
    }
  }
  for (std::size_t s = 0; s < servers.size(); ++s) {
    EXPECT_LE(servers[s], cluster.parts().servers[s].capacity[model::ResourceId(0)] + 1e-6);
  }
  for (std::size_t l = 0; l < links.size(); ++l) {
    EXPECT_LE(links[l], link_capacity(cluster, model::LinkId::from_index(l)) + 1e-6);
  }
}

TEST(PaperDecompositionTest, TakesASolutionApartIntoClosedRingsWhoseWeightsSumToWhatIsEmbedded) {
  base::Rng rng(23);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const TinyCase tiny = random_tiny_case(rng);
    const SlotProblem problem = tiny.problem();
    const PaperSlot slot = make_paper_slot(problem);
    const std::vector<int> sizes = select_rings(slot, relax(slot));
    const FullAugmented full = full_augmented_lp(slot, sizes);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      double sum = 0;
      for (const WeightedMapping& mapping : full.mappings[i]) {
        sum += mapping.weight;
      }
      EXPECT_NEAR(sum, full.embedded[i], 1e-6);
    }
    expect_valid(slot, sizes, full.mappings);
    expect_valid(slot, sizes, weighted_mappings(augment(slot, sizes).mappings));
  }
}

TEST(PaperDecompositionTest, DropsDustAndScalesSumsAboveOneBack) {
  const WeightedMappings mappings = weighted_mappings({{{1e-12, {}}, {0.75, {}}, {0.5, {}}}, {}});
  ASSERT_EQ(mappings[0].size(), 2u);
  EXPECT_DOUBLE_EQ(mappings[0][0].weight, 0.6);
  EXPECT_DOUBLE_EQ(mappings[0][1].weight, 0.4);
}

TEST(PaperRoundingTest, TheTheoremsFactorsFollowFromDemandsSizesAndCounts) {
  // Four servers of 4 GPUs, rings of 3 and 2: Delta = 9 + 4, eps = 1/4.
  const Cluster cluster = tree_cluster({.racks = 1, .servers_per_rack = 4, .gpus = 4, .server_bandwidth = 10});
  std::vector<Job> jobs = {rigid_job(cluster, "a", 3), rigid_job(cluster, "b", 2)};
  jobs[0].edge_bandwidth = {2};
  jobs[1].edge_bandwidth = {5};
  const SlotProblem problem = problem_of(cluster, jobs);
  const PaperFactors factors = theorem_factors(make_paper_slot(problem), {3, 2});
  EXPECT_DOUBLE_EQ(factors.alpha, 1.0 / 3);
  EXPECT_DOUBLE_EQ(factors.beta[0], 1 + 0.25 * std::sqrt(2 * 13 * std::log(4)));
  EXPECT_DOUBLE_EQ(factors.gamma, 1 + 0.5 * std::sqrt(2 * 13 * std::log(8)));  // eight directed links; the uplink has no limit
}

TEST(PaperRoundingTest, DrawsEveryMappingAsOftenAsItsWeightSays) {
  const Cluster cluster = flat_cluster({4, 4, 4});
  const std::vector<Job> jobs = {rigid_job(cluster, "a", 1)};
  const SlotProblem problem = problem_of(cluster, jobs);
  const PaperSlot slot = make_paper_slot(problem);
  const auto on = [](int server) { return model::Embedding{{model::ServerId(server)}, {}, {}}; };
  const WeightedMappings mappings = {{{0.5, on(0)}, {0.2, on(1)}}};
  base::Rng rng(5);
  constexpr int kDraws = 20000;
  std::vector<int> drawn(3, 0);
  for (int draw = 0; draw < kDraws; ++draw) {
    const PaperRounding rounding = round_randomly(slot, {1}, mappings, 0, {0, {10}, 10}, 1, rng);
    const auto& embedding = rounding.drawing.embeddings[0];
    ++drawn[embedding ? embedding->ring[0].index() : 2];
  }
  EXPECT_NEAR(drawn[0], 0.5 * kDraws, 0.015 * kDraws);
  EXPECT_NEAR(drawn[1], 0.2 * kDraws, 0.015 * kDraws);
}

TEST(PaperRoundingTest, DrawsAgainUntilTheFactorsHoldOrTheLimitIsReached) {
  const Cluster cluster = flat_cluster({1});
  const std::vector<Job> jobs = {rigid_job(cluster, "a", 1)};
  const SlotProblem problem = problem_of(cluster, jobs);
  const PaperSlot slot = make_paper_slot(problem);
  const WeightedMappings rarely = {{{0.05, model::Embedding{{model::ServerId(0)}, {}, {}}}}};
  base::Rng rng(6);
  const PaperRounding found = round_randomly(slot, {1}, rarely, 1, {1.0 / 3, {1}, 1}, 1000, rng);
  EXPECT_TRUE(found.satisfied);
  EXPECT_GT(found.roundings, 1);
  EXPECT_LT(found.roundings, 1000);
  const PaperRounding none = round_randomly(slot, {1}, {{}}, 1, {1.0 / 3, {1}, 1}, 7, rng);
  EXPECT_FALSE(none.satisfied);
  EXPECT_EQ(none.roundings, 7);
}

TEST(GadgetPaperTest, AsPublishedCountsOverloadsAndCleanedHasNone) {
  base::Rng rng(24);
  int overloaded = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const TightCase tight = random_tight_case(rng);
    const SlotProblem problem = tight.problem();
    GadgetPaper published({.paper_as_published = true});
    base::Rng same(7);
    const Decision drawn = published.decide(problem, same);
    overloaded += published.report().overloaded > 0 ? 1 : 0;
    EXPECT_EQ(check_decision(problem, drawn).size(), static_cast<std::size_t>(published.report().overloaded));
    GadgetPaper cleaned({});
    same = base::Rng(7);
    const Decision kept = cleaned.decide(problem, same);
    EXPECT_THAT(check_decision(problem, kept), IsEmpty());
    EXPECT_EQ(kept.placements.size() + static_cast<std::size_t>(cleaned.report().dropped), drawn.placements.size());
    EXPECT_GE(cleaned.report().relaxation, cleaned.report().augmented * (1 - 1e-9));
  }
  EXPECT_GT(overloaded, 10);
}

TEST(GadgetPaperTest, JobsOnTheFootOfASigmoidGainNothingAndGetNothing) {
  // Gains of exp(-720): the smallest numbers there are.
  const Cluster cluster = flat_cluster({4});
  std::vector<Job> jobs = {elastic_job(cluster, "a", 1, 2), elastic_job(cluster, "b", 1, 2)};
  for (Job& job : jobs) {
    job.utility = {.kind = model::UtilityKind::kSigmoid, .sensitivity = 0.5, .expected = 1440};
  }
  const SlotProblem problem = problem_of(cluster, jobs);
  GadgetPaper policy({});
  base::Rng rng(1);
  EXPECT_THAT(policy.decide(problem, rng).placements, IsEmpty());
  EXPECT_FALSE(Exact().decide(problem, rng).limited);
}

TEST(GadgetPaperTest, ReachesAThirdOfTheAugmentedOptimumWithinTheTheoremsFactors) {
  base::Rng rng(25);
  int satisfied = 0;
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    const TightCase tight = random_tight_case(rng);
    const SlotProblem problem = tight.problem();
    GadgetPaper policy({});
    const Decision decision = policy.decide(problem, rng);
    satisfied += policy.report().satisfied ? 1 : 0;
    EXPECT_EQ(policy.report().satisfied, policy.report().reached.alpha >= 1.0 / 3 &&
                                             policy.report().reached.beta[0] <= policy.report().theorem.beta[0] * (1 + 1e-8) &&
                                             policy.report().reached.gamma <= policy.report().theorem.gamma * (1 + 1e-8));
  }
  EXPECT_EQ(satisfied, kRounds);
}

}  // namespace
}  // namespace maypole::sched
