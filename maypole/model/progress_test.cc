// SPDX-License-Identifier: Apache-2.0
#include "maypole/model/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace maypole::model {
namespace {

constexpr base::Bandwidth kGigabit{1.25e8};

RingShape ring_of(int workers, int servers, base::Bandwidth bandwidth = {}) { return {workers, servers, bandwidth}; }

ProgressModel ring_model(ProgressKind kind = ProgressKind::kRing, OverlapSchedule schedule = OverlapSchedule::kSync) {
  ProgressModel model;
  model.kind = kind;
  model.schedule = schedule;
  model.gradient_bytes = 1e8;
  model.reduce_bytes_per_s = 5e9;
  model.forward_s = 0.3;
  model.backward_s = 0.6;
  model.latency_s = 0.01;
  model.bandwidth = kGigabit;
  return model;
}

// Equation (1), as the paper writes it.
double equation_1(const ProgressModel& m, double w, double b) {
  return m.gradient_bytes * (w - 1) / w * (2 / b + 1 / m.reduce_bytes_per_s) + m.forward_s + m.backward_s + m.latency_s;
}

TEST(ProgressTest, AConstantIsZetaPerWorkerWhateverTheSlot) {
  const ProgressModel model{.kind = ProgressKind::kConstant, .zeta = 437};
  EXPECT_EQ(model.per_slot(ring_of(3, 2), 60), 1311);
  EXPECT_EQ(model.per_slot(ring_of(3, 1), 600), 1311);
  EXPECT_EQ(model.per_slot(ring_of(0, 0), 60), 0);
}

TEST(ProgressTest, APowerIsZetaPerWorkerAtItsReferenceAndLessBeyond) {
  const ProgressModel model{.kind = ProgressKind::kPower, .zeta = 60, .exponent = 0.8, .reference = 4};
  EXPECT_EQ(model.per_slot(ring_of(4, 1), 60), 240);
  EXPECT_DOUBLE_EQ(model.per_slot(ring_of(8, 1), 60), 240 * std::pow(2, 0.8));
  EXPECT_DOUBLE_EQ(model.per_slot(ring_of(1, 1), 60), 240 * std::pow(0.25, 0.8));
  const ProgressModel linear{.kind = ProgressKind::kPower, .zeta = 60, .exponent = 1, .reference = 4};
  EXPECT_EQ(linear.per_slot(ring_of(7, 1), 60), 420);
}

TEST(ProgressTest, ARingTakesWhatEquationOneSays) {
  const ProgressModel model = ring_model();
  for (const int w : {2, 3, 8, 64}) {
    EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(w, 2)), equation_1(model, w, 1.25e8));
    EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(w, 2, {2e7})), equation_1(model, w, 2e7)) << "a reservation replaces the model's rate";
    EXPECT_DOUBLE_EQ(model.per_slot(ring_of(w, 2), 60), 60 * w / equation_1(model, w, 1.25e8));
  }
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(1, 1)), 0.3 + 0.6 + 0.01) << "one worker sends nothing";
}

TEST(ProgressTest, OnOneServerTheLocalRateCounts) {
  ProgressModel model = ring_model();
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(4, 1, {2e7})), 0.91 + 0.75e8 / 5e9) << "free, however little is reserved";
  model.local_bandwidth = {1e9};
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(4, 1, {2e7})), equation_1(model, 4, 1e9));
}

TEST(ProgressTest, WhatIsFreeCostsNothing) {
  ProgressModel model = ring_model();
  model.bandwidth = {};
  model.reduce_bytes_per_s = 0;
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(8, 4)), 0.91);
}

TEST(ProgressTest, SchedulesHideWhatTheyCanHide) {
  const auto cost = [](OverlapSchedule schedule, double bandwidth) {
    return ring_model(ProgressKind::kOverlap, schedule).iteration_s(ring_of(4, 2, {bandwidth}));
  };
  for (const double bandwidth : {1e7, 1.25e8, 3e8, 1e10}) {
    const double half = 0.75e8 / bandwidth + 0.75e8 / 5e9 / 2;  // of the reduce-scatter and of the all-gather
    EXPECT_DOUBLE_EQ(cost(OverlapSchedule::kSync, bandwidth), 0.3 + 0.6 + 2 * half + 0.01);
    EXPECT_DOUBLE_EQ(cost(OverlapSchedule::kWfbp, bandwidth), 0.3 + std::max(0.6, 2 * half) + 0.01);
    EXPECT_DOUBLE_EQ(cost(OverlapSchedule::kDear, bandwidth), std::max(0.3, half) + std::max(0.6, half) + 0.01);
    EXPECT_DOUBLE_EQ(cost(OverlapSchedule::kWeave, bandwidth), std::max(0.9, 2 * half) + 0.01);
    EXPECT_LE(cost(OverlapSchedule::kWeave, bandwidth), cost(OverlapSchedule::kDear, bandwidth));
    EXPECT_LE(cost(OverlapSchedule::kDear, bandwidth), cost(OverlapSchedule::kSync, bandwidth));
  }
}

TEST(ProgressTest, ATableIsItsPointsAndALineBetweenThem) {
  const ProgressModel model{.kind = ProgressKind::kTable,
                            .points = {{2, 1, 10}, {4, 1, 16}, {2, 2, 8}, {8, 2, 20}, {8, 4, 18}, {16, 4, 30}}};
  const auto rate = [&](int workers, int servers) { return model.per_slot(ring_of(workers, servers), 1); };
  EXPECT_EQ(rate(2, 1), 10);
  EXPECT_EQ(rate(3, 1), 13);
  EXPECT_EQ(rate(4, 1), 16);
  EXPECT_EQ(rate(9, 1), 16) << "beyond the largest no speed is invented";
  EXPECT_EQ(rate(1, 1), 5) << "below the smallest it falls to 0";
  EXPECT_EQ(rate(5, 2), 14);
  EXPECT_EQ(rate(8, 3), 20) << "3 servers lie between 2 and 4: the smaller";
  EXPECT_EQ(rate(12, 9), 24) << "9 servers: the nearest are 4";
  EXPECT_EQ(model.per_slot(ring_of(4, 1), 60), 960);
  EXPECT_EQ(rate(0, 1), 0);
}

TEST(ProgressTest, OnlyTheConstantAndThePowerForgetWhereTheWorkersAre) {
  const auto forgets = [](ProgressKind kind) { return ProgressModel{.kind = kind}.depends_on_workers_only(); };
  EXPECT_TRUE(forgets(ProgressKind::kConstant));
  EXPECT_TRUE(forgets(ProgressKind::kPower));
  EXPECT_FALSE(forgets(ProgressKind::kRing));
  EXPECT_FALSE(forgets(ProgressKind::kOverlap));
  EXPECT_FALSE(forgets(ProgressKind::kTable));
}

TEST(ProgressTest, HasTheNamesThatFilesUse) {
  std::string names;
  for (const ProgressKind kind :
       {ProgressKind::kConstant, ProgressKind::kPower, ProgressKind::kRing, ProgressKind::kOverlap, ProgressKind::kTable}) {
    names += std::string(name_of(kind)) + " ";
  }
  for (const OverlapSchedule schedule : {OverlapSchedule::kSync, OverlapSchedule::kWfbp, OverlapSchedule::kDear, OverlapSchedule::kWeave}) {
    names += std::string(name_of(schedule)) + " ";
  }
  EXPECT_EQ(names, "constant power ring overlap table sync wfbp dear weave ");
}

ProgressModel simulated_model() {
  ProgressModel model;
  model.kind = ProgressKind::kProfile;
  model.bandwidth = {1e8};
  model.iterations = {{1, false, 0, 1.0},   {2, false, 0, 1.0},   {2, false, 1e-9, 1.1}, {2, true, 0, 1.2},
                      {2, true, 1e-8, 1.2}, {2, true, 2e-8, 2.2}, {4, true, 0, 1.4},     {4, true, 1e-8, 3.4}};
  return model;
}

TEST(ProgressTest, AProfileIsInterpolatedOverSecondsPerByteAndWorkers) {
  const ProgressModel model = simulated_model();
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(1, 1)), 1);
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(2, 1, {5e7})), 1) << "within a server its own edges count, which are free here";
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(2, 2)), 1.2) << "1e-8 s a byte, where the job reserves nothing";
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(2, 2, {1 / 1.5e-8})), 1.7);
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(4, 2, {1 / 0.5e-8})), 2.4);
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(3, 2, {1 / 0.5e-8})), (1.2 + 2.4) / 2);
  EXPECT_DOUBLE_EQ(model.per_slot(ring_of(4, 2, {1 / 0.5e-8}), 60), 60 * 4 / 2.4);
  EXPECT_EQ(model.per_slot(ring_of(0, 0), 60), 0);
}

TEST(ProgressTest, AProfileGoesOnBeyondItsSlowestEdgeAndInventsNoSpeedBeyondItsWorkers) {
  const ProgressModel model = simulated_model();
  EXPECT_DOUBLE_EQ(model.iteration_s(ring_of(2, 2, {1 / 4e-8})), 4.2);
  EXPECT_DOUBLE_EQ(model.per_slot(ring_of(8, 2), 60), model.per_slot(ring_of(4, 2), 60));
}

}  // namespace
}  // namespace maypole::model
