// SPDX-License-Identifier: Apache-2.0
// Training goes from ring to ring while links break, ranks are lost and freeze: what each rank has is whole steps, and the end is that of
// an undisturbed run.
#include "maypole/comm/faulty_links.h"
#include "maypole/comm/ring_communicator.h"
#include "maypole/pipeline/engine_testing.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>

namespace maypole::pipeline {
namespace {

using comm::FaultKind;
using overlap::UpdateMode;

constexpr int kSteps = 12;
constexpr int kFirstRanks = 4;
constexpr std::size_t kArrays = 3;  // the parameter and both moments
constexpr std::chrono::minutes kNever{10};

/// Everything that is trained, after `step` steps.
struct State {
  std::int64_t step = -1;
  std::vector<std::vector<float>> values;  // of each parameter, the arrays one after the other
};

State fresh_state() {
  State state{0, {}};
  for (const ParameterSpec& parameter : two_parameters()) {
    state.values.emplace_back(kArrays * parameter.count, 0.0F);
  }
  return state;
}

/// The same on all ranks, so that an average does not depend on their number.
float gradient_of(std::int64_t step) { return static_cast<float>(step % 5 - 2); }

ModelOptions options_of(UpdateMode update) {
  ModelOptions options = options_for("weave", update, OptimizerKind::kAdam);
  options.keep_previous = update == UpdateMode::kSharded;
  return options;
}

/// Each parameter and its moments, as one rank of one ring holds them.
class Trained {
 public:
  Trained(Engine& engine, UpdateMode update) : engine_(engine), update_(update) {}

  absl::Status begin_with(const State& state) {
    absl::StatusOr<ModelId> model = engine_.add_model(two_parameters(), options_of(update_));
    if (!model.ok()) {
      return model.status();
    }
    model_ = *model;
    for (std::size_t i = 0; i < state.values.size(); ++i) {
      const std::size_t count = state.values[i].size() / kArrays;
      std::copy_n(state.values[i].begin(), count, floats(engine_.parameter(model_, i)).begin());
      for (std::size_t slot = 1; slot < kArrays; ++slot) {
        const std::span<const float> array(state.values[i].data() + slot * count, count);
        if (absl::Status status = engine_.write_state(model_, i, static_cast<int>(slot) - 1, std::as_bytes(array)); !status.ok()) {
          return status;
        }
      }
      engine_.set_update_count(model_, i, state.step);
    }
    return absl::OkStatus();
  }

  /// One step. Replicated: either all of it is done, or, with an error, nothing.
  absl::Status step(std::int64_t number) {
    if (absl::Status status = go_backward(engine_, model_, gradient_of(number)); !status.ok()) {
      return status;
    }
    if (update_ == UpdateMode::kReplicated) {
      if (absl::Status status = engine_.synchronize(model_); !status.ok()) {
        return status;
      }
      const absl::Status status = engine_.step(model_, kStep);
      EXPECT_TRUE(status.ok()) << "averages were here, so the step needs no peer: " << status;
      return status;
    }
    return engine_.step(model_, kStep);
  }

  /// Replicated.
  [[nodiscard]] State whole(std::int64_t step) {
    State state = fresh_state();
    state.step = step;
    for (std::size_t i = 0; i < state.values.size(); ++i) {
      const std::size_t count = state.values[i].size() / kArrays;
      std::ranges::copy(floats(engine_.parameter(model_, i)), state.values[i].begin());
      for (std::size_t slot = 1; slot < kArrays; ++slot) {
        std::ranges::copy(floats(engine_.state(model_, i, static_cast<int>(slot) - 1)),
                          state.values[i].begin() + static_cast<std::ptrdiff_t>(slot * count));
      }
    }
    return state;
  }

  /// Sharded: puts what `rank` had in its shard into `state`.
  void put(const std::vector<std::byte>& shard, int rank, State& state) {
    std::size_t at = state.values.size() * sizeof(std::int64_t);
    for (std::size_t i = 0; i < state.values.size(); ++i) {
      const std::size_t count = state.values[i].size() / kArrays;
      for (std::size_t array = 0; array < kArrays; ++array) {
        for (const model::Interval& run : engine_.shard_elements(model_, i, rank)) {
          std::memcpy(state.values[i].data() + array * count + run.begin, shard.data() + at, run.size() * sizeof(float));
          at += run.size() * sizeof(float);
        }
      }
    }
    EXPECT_EQ(at, shard.size());
  }

  [[nodiscard]] ModelId model() const { return model_; }

 private:
  Engine& engine_;
  UpdateMode update_;
  ModelId model_ = 0;
};

/// One rank, through all rings that it is in.
struct Member {
  State state = fresh_state();                              // replicated: the last step; sharded: what the ring began with
  std::map<std::int64_t, std::vector<std::byte>> shards{};  // sharded: by step, what was there when the ring ended
  bool begun = false;                                       // sharded: it had its part in the ring that has ended
  bool done = false;
};

/// The state of the rank that is furthest becomes everyone's. Nothing changes here before all of it has come.
absl::Status align(comm::Communicator& ring, State& state) {
  std::vector<std::int64_t> steps(static_cast<std::size_t>(ring.num_ranks()));
  steps[static_cast<std::size_t>(ring.rank())] = state.step;
  absl::Status status =
      ring.all_gather(reinterpret_cast<std::byte*>(steps.data()), steps.size() * sizeof(std::int64_t), base::DType::kByte).wait();
  if (!status.ok()) {
    return status;
  }
  const auto furthest = std::ranges::max_element(steps);
  State next = state;
  next.step = *furthest;
  for (std::vector<float>& values : next.values) {
    status = ring.broadcast(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float),
                            static_cast<int>(furthest - steps.begin()))
                 .wait();
    if (!status.ok()) {
      return status;
    }
  }
  state = std::move(next);
  return absl::OkStatus();
}

absl::Status train(Engine& engine, UpdateMode update, Member& me) {
  if (absl::Status status = align(engine.communicator(), me.state); !status.ok()) {
    return status;
  }
  Trained trained(engine, update);
  if (absl::Status status = trained.begin_with(me.state); !status.ok()) {
    return status;
  }
  me.begun = true;
  const std::int64_t first = me.state.step;
  std::int64_t made = first;
  absl::Status status;
  while (status.ok() && made < kSteps) {
    status = trained.step(made);
    made += status.ok() ? 1 : 0;
    if (status.ok() && update == UpdateMode::kReplicated) {
      me.state = trained.whole(made);
    }
  }
  if (status.ok()) {
    status = engine.flush(trained.model());
  }
  if (status.ok()) {
    status = engine.finalize();
  }
  me.done = status.ok();
  if (update == UpdateMode::kSharded) {
    for (std::int64_t step = std::max(first, made - 2); step <= made + 1; ++step) {
      if (auto shard = engine.read_shard(trained.model(), static_cast<std::uint64_t>(step - first)); shard.ok()) {
        me.shards[step] = *std::move(shard);
      }
    }
  }
  return status;
}

/// Sharded, with nobody lost: everybody's state becomes the latest step that is whole between the ranks of the ring that has ended.
void take_latest_whole_step(std::vector<Member>& members) {
  std::optional<std::int64_t> latest;
  for (const auto& [step, shard] : members[0].shards) {
    if (std::ranges::all_of(members, [step = step](const Member& member) { return member.shards.contains(step); })) {
      latest = step;
    }
  }
  const bool all_began = std::ranges::all_of(members, [](const Member& member) { return member.begun; });
  ASSERT_TRUE(latest.has_value() || !all_began) << "no step is whole between the ranks";
  if (latest.has_value()) {
    State state = fresh_state();
    state.step = *latest;
    std::vector<std::unique_ptr<comm::Communicator>> ring = make_fake_ring(static_cast<int>(members.size()), base::test_seed());
    run_ranks(
        static_cast<int>(members.size()), kPatient,
        [&](Engine& engine, int rank) {  // rank 0 of a ring of that size knows who owned what
          Trained trained(engine, UpdateMode::kSharded);
          ASSERT_TRUE(trained.begin_with(fresh_state()).ok());
          for (std::size_t r = 0; rank == 0 && r < members.size(); ++r) {
            trained.put(members[r].shards.at(*latest), static_cast<int>(r), state);
          }
          ASSERT_TRUE(engine.finalize().ok());
        },
        std::move(ring));
    for (Member& member : members) {
      member.state = state;
    }
  }
  for (Member& member : members) {
    member.shards.clear();
    member.begun = false;
  }
}

/// One ring of all members, in which `fault` happens, if it comes to it.
void run_ring(std::vector<Member>& members, UpdateMode update, const std::optional<comm::LinkFault>& fault, base::Nanoseconds silence,
              std::uint64_t seed) {
  auto ends = comm::make_inproc_connections(static_cast<int>(members.size()), comm::InprocKind::kStream, {});
  ASSERT_TRUE(ends.ok());
  auto links = comm::FaultyLinks::put_between(*ends, seed, std::chrono::microseconds(seed % 3 * 100));
  ASSERT_TRUE(links.ok());
  if (fault.has_value()) {
    (*links)->arm(*fault);
  }
  comm::ProgressOptions progress;
  progress.silence = silence;
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < members.size(); ++r) {
    threads.emplace_back([&, r] {
      members[r].done = false;
      auto communicator = comm::communicator_over(static_cast<int>(r), std::move((*ends)[r]), progress);
      if (!communicator.ok()) {
        return;  // while the ring formed
      }
      auto engine = Engine::create(*std::move(communicator), kPatient);
      ASSERT_TRUE(engine.ok());
      (void)train(**engine, update, members[r]);
    });
  }
}

bool all_done(const std::vector<Member>& members) {
  return std::ranges::all_of(members, [](const Member& member) { return member.done; });
}

/// Replicated: ranks have whole steps, are at most one apart, and where they are at the same one have the same bits.
void check_replicated(const std::vector<Member>& members) {
  const auto [first, last] = std::ranges::minmax_element(members, {}, [](const Member& member) { return member.state.step; });
  EXPECT_LE(last->state.step - first->state.step, 1);
  for (const Member& member : members) {
    EXPECT_EQ(member.state.values, (member.state.step == last->state.step ? last : first)->state.values);
  }
}

State undisturbed(UpdateMode update) {
  std::vector<Member> one(1);
  run_ring(one, update, std::nullopt, kNever, 0);
  EXPECT_TRUE(all_done(one));
  if (update == UpdateMode::kSharded) {
    take_latest_whole_step(one);
  }
  return one[0].state;
}

void expect_equal_within_rounding(const State& found, const State& expected) {
  ASSERT_EQ(found.step, expected.step);
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    for (std::size_t k = 0; k < expected.values[i].size(); ++k) {
      ASSERT_NEAR(found.values[i][k], expected.values[i][k], 1e-4 * (1 + std::abs(expected.values[i][k])));
    }
  }
}

/// Trains through `faults`, one ring each. Where one takes a rank along, the next ring is without it. A busy machine may look like a frozen
/// peer: then the ring is formed again.
void train_through(UpdateMode update, const std::vector<comm::LinkFault>& faults, base::Nanoseconds silence, std::uint64_t seed) {
  std::vector<Member> members(kFirstRanks);
  std::size_t next = 0;
  while (!all_done(members)) {
    std::optional<comm::LinkFault> fault;
    if (next < faults.size()) {
      fault = faults[next++];
      fault->rank %= static_cast<int>(members.size());
    }
    run_ring(members, update, fault, silence, seed + next);
    if (fault.has_value() && fault->kind != FaultKind::kCut && members.size() > 1 && !all_done(members)) {
      members.erase(members.begin() + fault->rank);
    }
    if (update == UpdateMode::kReplicated) {
      check_replicated(members);
    } else if (!all_done(members)) {
      take_latest_whole_step(members);
    }
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
  if (update == UpdateMode::kSharded) {
    take_latest_whole_step(members);
  }
  for (const Member& member : members) {
    expect_equal_within_rounding(member.state, undisturbed(update));
  }
}

/// Faults somewhere in the forming of a ring, the transfer of state and the steps.
std::vector<comm::LinkFault> draw(std::mt19937_64& random, std::vector<FaultKind> kinds, int count) {
  std::vector<comm::LinkFault> faults;
  for (int k = 0; k < count; ++k) {
    faults.push_back({kinds[random() % kinds.size()], static_cast<int>(random() % kFirstRanks), 1 + random() % 400});
  }
  return faults;
}

TEST(EngineFaults, ReplicatedStepsAreWholeWhereverALinkBreaksOrARankIsLost) {
  SCOPED_TRACE(base::test_seed());
  std::mt19937_64 random(base::test_seed());
  for (int round = 0; round < 6; ++round) {
    std::vector<comm::LinkFault> faults = draw(random, {FaultKind::kCut}, 4);
    const std::vector<comm::LinkFault> losses = draw(random, {FaultKind::kDrop}, 2);
    faults.insert(faults.begin() + 1, losses.begin(), losses.end());
    train_through(UpdateMode::kReplicated, faults, kNever, random());
  }
}

TEST(EngineFaults, ShardedStepsAreWholeBetweenTheRanksWhereverALinkBreaks) {
  SCOPED_TRACE(base::test_seed());
  std::mt19937_64 random(base::test_seed());
  for (int round = 0; round < 6; ++round) {
    train_through(UpdateMode::kSharded, draw(random, {FaultKind::kCut}, 6), kNever, random());
  }
}

TEST(EngineFaults, AFrozenRankIsLeftBehind) {
  SCOPED_TRACE(base::test_seed());
  std::mt19937_64 random(base::test_seed());
  train_through(UpdateMode::kReplicated, draw(random, {FaultKind::kFreeze}, 2), std::chrono::seconds(1), random());
}

}  // namespace
}  // namespace maypole::pipeline
