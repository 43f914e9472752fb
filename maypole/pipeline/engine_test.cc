// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/engine.h"

#include "maypole/comm/ring_communicator.h"
#include "maypole/pipeline/engine_testing.h"
#include "maypole/pipeline/fake_communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <map>
#include <random>
#include <thread>

namespace maypole::pipeline {
namespace {

using overlap::UpdateMode;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(Engine, RanksThatDisagreeOnTheModelAllNameTheDifference) {
  run_ranks(3, kPatient, [](Engine& engine, int rank) {
    std::vector<ParameterSpec> parameters = two_parameters();
    if (rank == 2) {
      parameters[1].count = 201;
    }
    const auto model = engine.add_model(parameters, options_for("weave"));
    EXPECT_EQ(model.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(text(model.status()), AllOf(HasSubstr("rank 2 has 'parameter 1: second.weight 201"),
                                            HasSubstr("where rank 0 has 'parameter 1: second.weight 200")));
    engine.finalize().IgnoreError();
  });
}

TEST(Engine, OptionsThatDoNotGoTogetherSayWhatDoes) {
  run_ranks(1, kPatient, [](Engine& engine, int) {
    EXPECT_THAT(text(engine.add_model(two_parameters(), options_for("sync", UpdateMode::kSharded)).status()),
                HasSubstr("update=\"replicated\""));
    ModelOptions compressed = options_for("weave", UpdateMode::kSharded);
    compressed.compress_bfloat16 = true;
    EXPECT_THAT(text(engine.add_model(two_parameters(), compressed).status()), HasSubstr("update=\"replicated\""));
    EXPECT_THAT(text(engine.add_model({}, options_for("weave")).status()), HasSubstr("at least one element"));
    EXPECT_THAT(text(engine.add_model(two_parameters(), options_for("fifo")).status()), HasSubstr("sync, wfbp, dear, weave"));
    ModelOptions adam = options_for("weave", UpdateMode::kReplicated, OptimizerKind::kAdam);
    adam.num_state_slots = 1;
    EXPECT_THAT(text(engine.add_model(two_parameters(), adam).status()), HasSubstr("state arrays"));
  });
}

TEST(Engine, HyperparametersMustCoverEveryParamGroup) {
  run_ranks(1, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    EXPECT_THAT(text(engine.step(model, {})), HasSubstr("first.weight"));
    EXPECT_THAT(text(engine.step(model, {.hyper = {{.momentum = 0.9}}})), HasSubstr("set momentum before the first step"));
    EXPECT_TRUE(engine.step(model, kStep).ok());
  });
}

TEST(Engine, DifferentNumbersOfBackwardsEndInAnErrorOnEveryRank) {
  for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
    run_ranks(2, kPatient, [schedule](Engine& engine, int rank) {
      const ModelId model = engine.add_model(two_parameters(), options_for(schedule)).value();
      absl::Status status;
      for (int turn = 0; turn < 4 && status.ok(); ++turn) {
        status = go_backward(engine, model, 1);
        if (status.ok() && rank == 1) {  // accumulates over two
          status = go_backward(engine, model, 1);
        }
        if (status.ok()) {
          status = engine.step(model, kStep);
        }
        if (status.ok()) {
          status = engine.flush(model);
        }
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << schedule << status;
      EXPECT_THAT(text(status), HasSubstr("join()"));
      EXPECT_EQ(engine.step(model, kStep), status) << "the first error sticks";
    });
  }
}

TEST(Engine, LatePeerEndsInAnErrorThatNamesWhatWasAwaited) {
  std::latch done(2);
  run_ranks(2, {.timeout = std::chrono::milliseconds(100)}, [&](Engine& engine, int rank) {
    const ModelId model = engine.add_model(two_parameters(), options_for("dear")).value();
    ASSERT_TRUE(go_backward(engine, model, 1).ok());
    if (rank == 0) {  // rank 1 does not step
      ASSERT_TRUE(engine.step(model, kStep).ok());
      const absl::Status status = engine.before_use(model, 1);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(text(status), AllOf(HasSubstr("'second.weight'"), HasSubstr("groups of model 0"), HasSubstr("MAYPOLE_TIMEOUT")));
    }
    done.arrive_and_wait();
  });
}

TEST(Engine, ErrorOfTheCommunicatorReachesEveryWaiterUnchanged) {
  run_ranks(3, kPatient, [](Engine& engine, int rank) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    if (rank == 2) {
      engine.communicator().abort(absl::UnavailableError("rank 2 is lost"));
    }
    absl::Status status = go_backward(engine, model, 1);
    if (status.ok()) {
      status = engine.step(model, kStep);
    }
    if (status.ok()) {
      status = engine.flush(model);
    }
    EXPECT_EQ(status, absl::UnavailableError("rank 2 is lost"));
  });
}

TEST(Engine, AStepFromAveragesThatAreHereIsDoneWholeWhateverBecomesOfThePeers) {
  for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
    std::latch synchronized(2);
    run_ranks(2, kPatient, [&](Engine& engine, int rank) {
      const ModelId model = engine.add_model(two_parameters(), options_for(schedule)).value();
      ASSERT_TRUE(go_backward(engine, model, 1).ok());
      ASSERT_TRUE(engine.synchronize(model).ok());
      synchronized.arrive_and_wait();
      engine.communicator().abort(absl::UnavailableError("a peer is lost"));
      EXPECT_EQ(engine.step(model, kStep), absl::OkStatus()) << schedule << " on rank " << rank;
      EXPECT_THAT(floats(engine.parameter(model, 0)), Each(-0.5f));
      EXPECT_THAT(floats(engine.parameter(model, 1)), Each(-0.5f));
      EXPECT_EQ(engine.update_count(model, 0), 1);
    });
  }
}

TEST(Engine, SecondGradientAfterReduceScatterBeganIsAnErrorByName) {
  run_ranks(1, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    const std::vector<float> gradient(200, 1.0f);
    absl::Status status;
    while (status.ok()) {  // until the engine thread has begun
      status = engine.gradient_ready(model, 1, reinterpret_cast<const std::byte*>(gradient.data()));
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(text(status), AllOf(HasSubstr("'second.weight'"), HasSubstr("schedule 'sync'")));
  });
}

TEST(Engine, ParametersAreInMotionUntilEveryRankHasStepped) {
  for (const UpdateMode update : {UpdateMode::kReplicated, UpdateMode::kSharded}) {
    std::latch looked(1);
    run_ranks(2, kPatient, [&](Engine& engine, int rank) {
      const ModelId model = engine.add_model(two_parameters(), options_for("dear", update)).value();
      ASSERT_TRUE(go_backward(engine, model, rank == 0 ? 1.0f : 3.0f).ok());
      EXPECT_FALSE(engine.in_motion(model, 0));
      if (rank == 1) {
        looked.wait();
      }
      ASSERT_TRUE(engine.step(model, kStep).ok());
      if (rank == 0) {
        EXPECT_TRUE(engine.in_motion(model, 0));
        looked.count_down();
      }
      ASSERT_TRUE(engine.before_use(model, 0).ok());
      EXPECT_FALSE(engine.in_motion(model, 0));
      EXPECT_THAT(floats(engine.parameter(model, 0)), Each(-1.0f));
      EXPECT_TRUE(engine.finalize().ok());
    });
  }
}

TEST(Engine, WhatForwardNeedsFirstIsGatheredFirstThoughItsReduceScatterBeganAfterStep) {
  for (const std::string schedule : {"dear", "weave"}) {
    struct Seen {
      std::vector<std::int64_t> priorities;  // of the groups, as the engine thread opened them: the last group first
      std::latch opened{1}, stepped{1};
    };
    std::array<Seen, 2> seen;
    const auto watch = [&](int rank, const comm::AllGatherOp& op) {
      Seen& here = seen[static_cast<std::size_t>(rank)];
      here.priorities.push_back(op.priority);
      if (here.priorities.size() == 1) {
        here.opened.count_down();
        here.stepped.wait();  // step() overtakes the groups that follow
      }
    };
    const auto body = [&](Engine& engine, int rank) {
      const ModelId model = engine.add_model(two_parameters(), options_for(schedule)).value();
      const std::vector<float> gradient(300, 1.0f);
      ASSERT_TRUE(engine.gradient_ready(model, 1, reinterpret_cast<const std::byte*>(gradient.data())).ok());
      seen[static_cast<std::size_t>(rank)].opened.wait();
      ASSERT_TRUE(engine.gradient_ready(model, 0, reinterpret_cast<const std::byte*>(gradient.data())).ok());
      ASSERT_TRUE(engine.step(model, kStep).ok());
      seen[static_cast<std::size_t>(rank)].stepped.count_down();
      ASSERT_TRUE(engine.flush(model).ok());
      EXPECT_TRUE(engine.finalize().ok());
    };
    run_ranks(2, kPatient, body, make_fake_ring(2, 1, watch));
    for (const Seen& here : seen) {
      EXPECT_GE(here.priorities.size(), 4U);
      EXPECT_TRUE(std::ranges::is_sorted(here.priorities, std::greater())) << schedule;
    }
  }
}

TEST(Engine, OneRankAloneReadsShardedStateWhileTheOthersGoOn) {
  for (const char* schedule : {"dear", "weave"}) {
    run_ranks(3, kPatient, [schedule](Engine& engine, int rank) {
      const ModelId model = engine.add_model(two_parameters(), options_for(schedule, UpdateMode::kSharded, OptimizerKind::kAdam)).value();
      double mean = 0;
      for (int step = 0; step < 5; ++step) {
        ASSERT_TRUE(engine.before_use(model, 0).ok());
        ASSERT_TRUE(go_backward(engine, model, static_cast<float>(rank + step)).ok());
        ASSERT_TRUE(engine.step(model, kStep).ok());
        mean = 0.9 * mean + 0.1 * (1 + step);
        EXPECT_EQ(engine.update_count(model, 1), step + 1);
        EXPECT_TRUE(engine.state(model, 1, 0).empty());
        if (rank == step % 3) {
          auto state = engine.read_state(model, 1, 0);
          ASSERT_TRUE(state.ok()) << state.status();
          EXPECT_THAT(floats(*state), Each(::testing::FloatNear(static_cast<float>(mean), 1e-5f)));
        }
      }
      EXPECT_TRUE(engine.finalize().ok());
    });
  }
}

TEST(Engine, WrittenStateAndCountsAreReadBack) {
  for (const UpdateMode update : {UpdateMode::kReplicated, UpdateMode::kSharded}) {
    run_ranks(3, kPatient, [&](Engine& engine, int) {
      const ModelId model = engine.add_model(two_parameters(), options_for("weave", update, OptimizerKind::kAdamW)).value();
      std::vector<float> values(300);
      for (std::size_t k = 0; k < values.size(); ++k) {
        values[k] = static_cast<float>(k);
      }
      ASSERT_TRUE(engine.write_state(model, 0, 1, std::as_bytes(std::span(values))).ok());
      engine.set_update_count(model, 0, 41);
      EXPECT_EQ(engine.update_count(model, 0), 41);
      EXPECT_THAT(text(engine.write_state(model, 1, 0, std::as_bytes(std::span(values)))), HasSubstr("800 bytes"));
      ASSERT_TRUE(engine.communicator().barrier().wait().ok());
      std::vector<std::byte> read = engine.read_state(model, 0, 1).value();
      EXPECT_THAT(floats(read), ::testing::ElementsAreArray(values));
      EXPECT_TRUE(engine.finalize().ok());
    });
  }
}

TEST(Engine, StateOfAShardCannotBeReadBetweenBackwardAndStep) {
  run_ranks(1, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave", UpdateMode::kSharded, OptimizerKind::kAdamW)).value();
    ASSERT_TRUE(go_backward(engine, model, 1).ok());
    EXPECT_THAT(text(engine.read_state(model, 0, 0).status()), HasSubstr("before backward() or after step()"));
  });
}

TEST(Engine, GradientNormRefusesTypesBelowOne) {
  run_ranks(1, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    EXPECT_EQ(engine.gradient_norm(model, 0.5).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(engine.gradient_norm(model, std::nan("")).status().code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST(Engine, ReportCountsIterationsAfterWarmUpAndListsGroups) {
  run_ranks(2, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave", UpdateMode::kSharded)).value();
    for (int step = 0; step < 9; ++step) {
      engine.mark_forward(model);
      ASSERT_TRUE(engine.before_use(model, 0).ok());
      ASSERT_TRUE(engine.before_use(model, 1).ok());
      engine.mark_backward(model);
      ASSERT_TRUE(go_backward(engine, model, 1).ok());
      ASSERT_TRUE(engine.step(model, kStep).ok());
    }
    ASSERT_TRUE(engine.flush(model).ok());
    const Report report = engine.report(model);
    EXPECT_EQ(report.iterations, 9u - 1 - 3);
    EXPECT_EQ(report.schedule, "weave");
    EXPECT_EQ(report.update, "sharded");
    EXPECT_EQ(report.world_size, 2);
    EXPECT_EQ(report.groups.size(), engine.plan(model).groups.size());
    EXPECT_GT(report.iteration_s, 0);
    EXPECT_GT(report.forward_s, 0);
    EXPECT_GT(report.backward_s, 0);
    EXPECT_GT(report.reduce_scatter_s, 0);
    EXPECT_GT(report.all_gather_s, 0);
    EXPECT_LE(report.forward_s + report.backward_s + report.exposed_s, 3 * report.iteration_s);
    // An arena of 504 elements, half of it twice; the fake takes 1 ns a byte.
    EXPECT_NEAR(report.communication_s, std::min(1e-9 * 4 * 504, report.iteration_s), 1e-12);
    EXPECT_LE(report.communication_s, report.iteration_s);
    EXPECT_GE(report.bound_s, report.communication_s);
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(Engine, OtherGroupsTakeEffectWithTheNextStepAndBeginTheReportAnew) {
  run_ranks(2, kPatient, [](Engine& engine, int) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    const std::size_t groups = engine.plan(model).groups.size();
    for (int step = 0; step < 6; ++step) {
      ASSERT_TRUE(go_backward(engine, model, 1).ok());
      ASSERT_TRUE(engine.step(model, kStep).ok());
    }
    ASSERT_TRUE(go_backward(engine, model, 1).ok());
    ASSERT_TRUE(engine.regroup(model, {.block_bytes = 256, .group_bytes = 1 << 20, .first_group_bytes = 1 << 20}).ok());
    EXPECT_EQ(engine.plan(model).groups.size(), groups);  // this round still runs in the old ones
    ASSERT_TRUE(engine.step(model, kStep).ok());
    ASSERT_TRUE(go_backward(engine, model, 1).ok());
    EXPECT_EQ(engine.plan(model).groups.size(), 1u);
    EXPECT_EQ(engine.report(model).iterations, 0u);
    EXPECT_EQ(engine.report(model).groups.size(), 1u);
    ASSERT_TRUE(engine.step(model, kStep).ok());
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(Engine, RegroupingKeepsTheBlocksAndNeedsAllRanksToAgree) {
  run_ranks(2, kPatient, [](Engine& engine, int rank) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    EXPECT_THAT(text(engine.regroup(model, {.block_bytes = 512})), HasSubstr("blocks of 256 bytes"));
    EXPECT_THAT(text(engine.regroup(model, {.block_bytes = 256, .group_bytes = rank == 0 ? 512u : 1024u})), HasSubstr("rank 1 has"));
    engine.finalize().IgnoreError();
  });
}

TEST(Engine, GroupsAreTunedWhileItTrainsAndEveryRankHasTheSame) {
  for (const char* search : {"auto", "plan", "bayes"}) {
    std::vector<Cuts> chosen(3);
    run_ranks(3, kPatient, [&](Engine& engine, int rank) {
      ModelOptions options = options_for("weave");
      options.fusion_search = search;
      const ModelId model = engine.add_model(two_parameters(), options).value();
      for (int step = 0; step < 70; ++step) {
        engine.mark_forward(model);
        ASSERT_TRUE(engine.before_use(model, 0).ok() && engine.before_use(model, 1).ok());
        engine.mark_backward(model);
        ASSERT_TRUE(go_backward(engine, model, 1).ok());
        ASSERT_TRUE(engine.step(model, kStep).ok());
      }
      ASSERT_TRUE(engine.flush(model).ok());
      ASSERT_TRUE(go_backward(engine, model, 1).ok());  // what was decided last takes effect
      chosen[static_cast<std::size_t>(rank)] = overlap::cuts_of(engine.plan(model));
      EXPECT_THAT(floats(engine.parameter(model, 0)), Each(-35.0f));
      if (rank == 0) {
        EXPECT_EQ(engine.times_tuned(model), 1u);
        const TuningReport report = engine.tuning(model);
        EXPECT_EQ(report.cuts, chosen[0]);
        EXPECT_GT(report.tuned_for.compute_s, 0);
        EXPECT_THAT(engine.report(model).fusion, HasSubstr("tried start"));
      }
      EXPECT_TRUE(engine.finalize().ok());
    });
    EXPECT_THAT(chosen, Each(chosen[0])) << search;
  }
}

TEST(Engine, GroupsOfAnEarlierRunAreTheFirstOnes) {
  run_ranks(2, kPatient, [](Engine& engine, int) {
    ModelOptions options = options_for("weave");
    options.cuts = {{0, 1, 5}};
    options.tuned_for = {1e-9, 1e-3};
    options.fusion_search = "auto";
    const ModelId model = engine.add_model(two_parameters(), options).value();
    EXPECT_EQ(overlap::cuts_of(engine.plan(model)), options.cuts);
    options.cuts = {{0, 1, 500}};
    EXPECT_THAT(text(engine.add_model(two_parameters(), options).status()), HasSubstr("ascending blocks"));
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(Engine, ARankThatIsLostWhileGroupsAreTunedEndsTheOthersWithItsName) {
  run_ranks(3, kPatient, [](Engine& engine, int rank) {
    ModelOptions options = options_for("weave");
    options.fusion_search = "auto";
    const ModelId model = engine.add_model(two_parameters(), options).value();
    absl::Status status;
    for (int step = 0; step < 40 && status.ok(); ++step) {
      if (rank == 1 && step == 8) {  // the others wait for it in the step in which the first window is full
        engine.communicator().abort(absl::UnavailableError("rank 1 is lost"));
        return;
      }
      status.Update(go_backward(engine, model, 1));
      status.Update(engine.step(model, kStep));
    }
    EXPECT_THAT(text(status), HasSubstr("rank 1 is lost"));
  });
}

TEST(Engine, TimelineHoldsTheEventsOfThisRankOnTracksThatDoNotOverlap) {
  EngineOptions options = kPatient;
  options.timeline = true;
  run_ranks(2, options, [](Engine& engine, int rank) {
    const ModelId model = engine.add_model(two_parameters(), options_for("weave")).value();
    for (int step = 0; step < 4; ++step) {
      engine.mark_forward(model);
      ASSERT_TRUE(engine.before_use(model, 0).ok());
      engine.mark_backward(model);
      ASSERT_TRUE(go_backward(engine, model, 1).ok());
      ASSERT_TRUE(engine.step(model, kStep).ok());
    }
    ASSERT_TRUE(engine.flush(model).ok());
    const std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("maypole-timeline-{}-{}.json", getpid(), rank);
    ASSERT_TRUE(engine.write_timeline(path.string()).ok());
    const nlohmann::json trace = nlohmann::json::parse(std::ifstream(path));
    std::filesystem::remove(path);
    std::map<int, std::vector<std::pair<double, double>>> tracks;  // microseconds since 1970: a double resolves 0.25 of them
    std::map<std::string, int> names;
    for (const auto& event : trace.at("traceEvents")) {
      EXPECT_EQ(event.at("pid"), rank);
      if (event.at("ph") == "X") {
        tracks[event.at("tid")].emplace_back(event.at("ts"), event.at("dur"));
        ++names[event.at("name")];
      }
    }
    for (auto& [track, events] : tracks) {
      std::ranges::sort(events);
      for (std::size_t k = 1; k < events.size(); ++k) {
        EXPECT_LE(events[k - 1].first + events[k - 1].second, events[k].first + 0.6) << "track " << track;
      }
    }
    EXPECT_EQ(names["RS group 0"], 4);
    EXPECT_EQ(names["AG group 0"], 4);
    EXPECT_EQ(names["update group 0"], 4);
    EXPECT_EQ(names["forward"], 4);
    EXPECT_EQ(names["backward"], 4);
    EXPECT_THAT(text(engine.write_timeline("/dev/full")), AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
    EXPECT_THAT(text(engine.write_timeline("/nowhere/t.json")), HasSubstr("/nowhere/t.json"));
    EXPECT_TRUE(engine.finalize().ok());
  });
}

TEST(Engine, BackwardWithoutStepDoesNotKeepTheJobFromEnding) {
  for (const char* schedule : {"sync", "wfbp", "dear", "weave"}) {
    run_ranks(
        2, kPatient,
        [schedule](Engine& engine, int) {
          const ModelId model = engine.add_model(two_parameters(), options_for(schedule)).value();
          ASSERT_TRUE(go_backward(engine, model, 1).ok());
          EXPECT_EQ(engine.finalize(), absl::OkStatus()) << schedule;
          EXPECT_THAT(floats(engine.parameter(model, 0)), Each(0.0f));
        },
        comm::make_inproc_ring(2, comm::InprocKind::kStream).value());
  }
}

}  // namespace
}  // namespace maypole::pipeline
