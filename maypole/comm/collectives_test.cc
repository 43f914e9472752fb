// SPDX-License-Identifier: Apache-2.0
// One contract suite over every in-process transport, number of ranks and odd size.
#include "maypole/comm/ring_communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

namespace maypole::comm {
namespace {

using base::DType;
using Ring = std::vector<std::unique_ptr<Communicator>>;

std::byte* raw(auto& values) { return reinterpret_cast<std::byte*>(values.data()); }

/// gmock's Each describes every element: too slow for large buffers.
template <typename T>
bool all_equal(const std::vector<T>& values, auto expected) {
  return std::ranges::all_of(values, [&](T value) { return value == static_cast<T>(expected); });
}

/// Runs `f(rank, communicator)` on a thread per rank.
template <typename F>
void on_every_rank(Ring& ring, F f) {
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ring.size(); ++r) {
    threads.emplace_back([&, r] { f(static_cast<int>(r), *ring[r]); });
  }
}

/// Element i of rank r's input; sums are small integers, exact in every order.
template <typename T>
T value(int rank, std::size_t i) {
  return static_cast<T>((static_cast<int>(i % 17) - 8) * (rank + 1));
}
template <typename T>
T total(int num_ranks, std::size_t i) {
  T sum = 0;
  for (int r = 0; r < num_ranks; ++r) {
    sum += value<T>(r, i);
  }
  return sum;
}

class CollectivesTest : public ::testing::TestWithParam<std::tuple<int, InprocKind>> {
 protected:
  void SetUp() override {
    auto made = make_inproc_ring(num_ranks(), std::get<1>(GetParam()));
    ASSERT_TRUE(made.ok()) << made.status();
    ring_ = *std::move(made);
  }
  [[nodiscard]] static int num_ranks() { return std::get<0>(GetParam()); }
  Ring ring_;
};

constexpr std::array<std::size_t, 9> kSizes{0, 1, 2, 5, 1000, 16384, 16385, 100003, 700001};

TEST_P(CollectivesTest, AllReduceSumsInPlaceAtEverySize) {
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    for (const std::size_t n : kSizes) {
      std::vector<float> data(n);
      for (std::size_t i = 0; i < n; ++i) {
        data[i] = value<float>(rank, i);
      }
      const absl::Status status = comm.all_reduce(raw(data), n, DType::kFloat32, ReduceOp::kSum).wait();
      ASSERT_TRUE(status.ok()) << status;
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(data[i], total<float>(num_ranks(), i)) << "n " << n << " i " << i;
      }
    }
  });
}

TEST_P(CollectivesTest, AllReduceAveragesDoubles) {
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    for (const std::size_t n : {std::size_t{3}, std::size_t{50021}}) {
      std::vector<double> data(n);
      for (std::size_t i = 0; i < n; ++i) {
        data[i] = value<double>(rank, i);
      }
      ASSERT_TRUE(comm.all_reduce(raw(data), n, DType::kFloat64, ReduceOp::kAverage).wait().ok());
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(data[i], total<double>(num_ranks(), i) / num_ranks(), 1e-12);
      }
    }
  });
}

TEST_P(CollectivesTest, ReduceScatterGivesEachRankItsChunkAndLeavesTheInputIntact) {
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    for (const std::size_t n : kSizes) {
      std::vector<double> input(n);
      for (std::size_t i = 0; i < n; ++i) {
        input[i] = value<double>(rank, i);
      }
      const std::vector<double> before = input;
      const model::Interval own = model::chunk_of(n, static_cast<std::size_t>(rank), static_cast<std::size_t>(num_ranks()));
      std::vector<double> output(own.size());
      ASSERT_TRUE(comm.reduce_scatter(raw(input), n, raw(output), DType::kFloat64, ReduceOp::kSum).wait().ok());
      EXPECT_EQ(input, before);
      for (std::size_t i = 0; i < own.size(); ++i) {
        ASSERT_EQ(output[i], total<double>(num_ranks(), own.begin + i)) << "n " << n;
      }
    }
  });
}

TEST_P(CollectivesTest, AllGatherCollectsEveryChunk) {
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    for (const std::size_t n : kSizes) {
      const auto p = static_cast<std::size_t>(num_ranks());
      std::vector<float> data(n, -1);
      const model::Interval own = model::chunk_of(n, static_cast<std::size_t>(rank), p);
      for (std::size_t i = own.begin; i < own.end; ++i) {
        data[i] = static_cast<float>(i);
      }
      ASSERT_TRUE(comm.all_gather(raw(data), n, DType::kFloat32).wait().ok());
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(data[i], static_cast<float>(i)) << "n " << n;
      }
    }
  });
}

TEST_P(CollectivesTest, BroadcastSendsTheRootsBytesFromEveryRoot) {
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{777}, std::size_t{300001}}) {
      for (int root = 0; root < num_ranks(); ++root) {
        std::vector<std::uint8_t> data(n, static_cast<std::uint8_t>(rank == root ? 100 + root : 7));
        ASSERT_TRUE(comm.broadcast(raw(data), n, root).wait().ok());
        EXPECT_TRUE(all_equal(data, 100 + root));
      }
    }
  });
}

TEST_P(CollectivesTest, ManyOperationsInMotionAtOnceEndRight) {
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    constexpr std::size_t kOps = 40;
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (std::size_t k = 0; k < kOps; ++k) {
      data.emplace_back(1 + k * 997, static_cast<float>(rank + 1));
    }
    for (auto& values : data) {
      works.push_back(comm.all_reduce(raw(values), values.size(), DType::kFloat32, ReduceOp::kSum));
    }
    for (const Work& work : works) {
      ASSERT_TRUE(work.wait().ok());
    }
    const int sum = num_ranks() * (num_ranks() + 1) / 2;
    for (const auto& values : data) {
      EXPECT_TRUE(all_equal(values, static_cast<float>(sum)));
    }
  });
}

TEST_P(CollectivesTest, GroupsReduceInPlanOrderAndGatherInAnyOrder) {
  constexpr std::size_t kBlock = 4096;
  constexpr std::size_t kCount = 20 * kBlock + 123;
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    auto memory = comm.allocate(kCount * sizeof(float));
    ASSERT_TRUE(memory.ok()) << memory.status();
    auto* values = reinterpret_cast<float*>((*memory)->bytes().data());
    for (int iteration = 0; iteration < 3; ++iteration) {
      for (std::size_t i = 0; i < kCount; ++i) {
        values[i] = value<float>(rank, i);
      }
      std::vector<model::BlockRange> groups;
      for (std::size_t begin = 0; begin < kCount; begin += 3 * kBlock) {
        groups.push_back({begin, begin + 3 * kBlock < kCount ? begin + 3 * kBlock : kCount, kBlock});
      }
      std::vector<Work> reduces;
      std::vector<Work> gathers;
      for (std::size_t g = groups.size(); g-- > 0;) {
        const std::uint64_t tag = static_cast<std::uint64_t>(iteration) * 100 + g;
        reduces.push_back(
            comm.reduce_scatter_group({tag, (*memory)->bytes().data(), groups[g], DType::kFloat32, DType::kFloat32, ReduceOp::kSum}));
        gathers.push_back(
            comm.open_all_gather({tag, static_cast<int>(g), (*memory)->bytes().data(), groups[g], DType::kFloat32, DType::kFloat32}));
        reduces.back().on_done([&comm, tag](const absl::Status& status) {
          if (status.ok()) {
            comm.supply_all_gather(tag);
          }
        });
      }
      for (const Work& work : gathers) {
        ASSERT_TRUE(work.wait().ok());
      }
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(values[i], total<float>(num_ranks(), i)) << i;
      }
    }
  });
}

TEST_P(CollectivesTest, RanksMayStartGroupsAtVeryDifferentTimes) {
  constexpr std::size_t kCount = 300000;
  std::vector<std::vector<float>> data(static_cast<std::size_t>(num_ranks()), std::vector<float>(kCount));
  // Rank by rank from one thread: each rank starts everything before the next one starts anything.
  std::vector<Work> works;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t r = 0; r < data.size(); ++r) {
      if (round == 0) {
        std::fill(data[r].begin(), data[r].end(), static_cast<float>(r + 1));
      }
      const model::BlockRange third{static_cast<std::size_t>(round) * 100000, static_cast<std::size_t>(round + 1) * 100000, 10000};
      works.push_back(ring_[r]->reduce_scatter_group(
          {static_cast<std::uint64_t>(round), raw(data[r]), third, DType::kFloat32, DType::kFloat32, ReduceOp::kAverage}));
    }
  }
  for (const Work& work : works) {
    ASSERT_TRUE(work.wait().ok());
  }
  const auto p = static_cast<std::size_t>(num_ranks());
  for (std::size_t r = 0; r < p; ++r) {
    for (const model::Interval own : model::owned_parts({0, kCount}, kCount, 10000, r, p)) {
      for (std::size_t e = own.begin; e < own.end; ++e) {
        ASSERT_FLOAT_EQ(data[r][e], static_cast<float>(p + 1) / 2);
      }
    }
  }
}

TEST_P(CollectivesTest, RanksMayStartUnrelatedReduceScattersInDifferentOrder) {
  constexpr std::size_t kCount = 40000;
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    std::array<std::vector<float>, 2> data{std::vector<float>(kCount, 1.0F), std::vector<float>(kCount, 100.0F)};
    std::vector<Work> works;
    for (const std::size_t k : rank % 2 == 0 ? std::array<std::size_t, 2>{0, 1} : std::array<std::size_t, 2>{1, 0}) {
      works.push_back(
          comm.reduce_scatter_group({k, raw(data[k]), {0, kCount, 1000}, DType::kFloat32, DType::kFloat32, ReduceOp::kAverage}));
    }
    for (const Work& work : works) {
      ASSERT_TRUE(work.wait().ok());
    }
    EXPECT_TRUE(all_equal(data[0], 1));
    EXPECT_TRUE(all_equal(data[1], 100));
  });
}

TEST_P(CollectivesTest, AnAllGatherOfWhichARankOwnsNothingStillWaitsForItsSupply) {
  if (num_ranks() == 1) {
    return;
  }
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    float value = rank == num_ranks() - 1 ? 5.0F : 0.0F;  // one element, owned by the last rank
    const Work gather = comm.open_all_gather({3, 0, reinterpret_cast<std::byte*>(&value), {0, 1, 16}, DType::kFloat32, DType::kFloat32});
    ASSERT_TRUE(comm.barrier().wait().ok());
    EXPECT_FALSE(gather.done());
    ASSERT_TRUE(comm.barrier().wait().ok());
    comm.supply_all_gather(3);
    ASSERT_TRUE(gather.wait().ok());
    EXPECT_EQ(value, 5.0F);
  });
}

TEST_P(CollectivesTest, WhoeverWaitsForAnOperationGetsItWhateverOthersHaveStartedSince) {
  for (const std::size_t n : {std::size_t{10}, std::size_t{300000}}) {
    on_every_rank(ring_, [n](int rank, Communicator& comm) {
      std::vector<float> first(n, 1.0F);
      std::vector<float> second(n, 2.0F);
      const Work a = comm.all_reduce(raw(first), n, DType::kFloat32, ReduceOp::kSum);
      if (rank == 0) {
        ASSERT_TRUE(a.wait_for(std::chrono::seconds(60)).ok());  // before it starts the second, which the others have started
      }
      const Work b = comm.all_reduce(raw(second), n, DType::kFloat32, ReduceOp::kSum);
      ASSERT_TRUE(a.wait().ok());
      ASSERT_TRUE(b.wait().ok());
      EXPECT_TRUE(all_equal(first, num_ranks()));
      EXPECT_TRUE(all_equal(second, 2 * num_ranks()));
    });
  }
}

TEST_P(CollectivesTest, BytesAreNotSummed) {
  std::vector<std::byte> data(100);
  EXPECT_EQ(ring_[0]->all_reduce(data.data(), data.size(), DType::kByte, ReduceOp::kSum).wait().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(CollectivesTest, CompressedGroupsGiveEqualBitsOnAllRanksWithinRounding) {
  constexpr std::size_t kCount = 50000;
  const auto p = static_cast<std::size_t>(num_ranks());
  std::vector<std::vector<float>> data(p, std::vector<float>(kCount));
  on_every_rank(ring_, [&](int rank, Communicator& comm) {
    std::mt19937_64 rng(static_cast<std::uint64_t>(rank));
    auto& mine = data[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < kCount; ++i) {
      mine[i] = 1.0F + static_cast<float>(i % 100) / 100;
    }
    const model::BlockRange all{0, kCount, 8192};
    const Work gather = comm.open_all_gather({7, 0, raw(mine), all, DType::kFloat32, DType::kBFloat16});
    ASSERT_TRUE(comm.reduce_scatter_group({7, raw(mine), all, DType::kFloat32, DType::kBFloat16, ReduceOp::kAverage}).wait().ok());
    comm.supply_all_gather(7);
    ASSERT_TRUE(gather.wait().ok());
  });
  for (std::size_t r = 1; r < p; ++r) {
    EXPECT_EQ(data[r], data[0]);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(data[0][i], 1.0F + static_cast<float>(i % 100) / 100, 0.004 * 2 * static_cast<double>(p));
  }
}

TEST_P(CollectivesTest, APeerAnswersWithoutItsCaller) {
  if (num_ranks() == 1) {
    EXPECT_FALSE(ring_[0]->read_peer(0, 1, std::chrono::seconds(1)).ok());
    return;
  }
  const int last = num_ranks() - 1;
  ring_[static_cast<std::size_t>(last)]->serve([](std::uint64_t key) -> absl::StatusOr<std::vector<std::byte>> {
    if (key == 99) {
      return absl::NotFoundError("no such thing");
    }
    return std::vector<std::byte>(200000 + key, std::byte{5});
  });
  const auto answer = ring_[0]->read_peer(last, 3, std::chrono::seconds(20));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, std::vector<std::byte>(200003, std::byte{5}));
  EXPECT_EQ(ring_[0]->read_peer(last, 99, std::chrono::seconds(20)).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(CollectivesTest, RanksThatDisagreeOnTheSizeAllGetAnErrorThatSaysSo) {
  if (num_ranks() == 1) {
    return;
  }
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    std::vector<float> data(rank == 0 ? 100000 : 100001);
    const absl::Status status = comm.all_reduce(raw(data), data.size(), DType::kFloat32, ReduceOp::kSum).wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("disagrees"));
  });
}

TEST_P(CollectivesTest, AnAbortReachesEveryRankWithItsReason) {
  if (num_ranks() == 1) {
    return;
  }
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    std::vector<float> data(100000);
    if (rank == num_ranks() - 1) {
      comm.abort(absl::InternalError("rank says: ValueError: bad batch"));
    }
    const absl::Status status = comm.all_reduce(raw(data), data.size(), DType::kFloat32, ReduceOp::kSum).wait();
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("bad batch"));
    EXPECT_FALSE(comm.all_reduce(raw(data), 1, DType::kFloat32, ReduceOp::kSum).wait().ok());
  });
}

TEST_P(CollectivesTest, ALostRankIsNamedToEverySurvivor) {
  if (num_ranks() == 1) {
    return;
  }
  const int lost = num_ranks() / 2;
  on_every_rank(ring_, [&](int rank, Communicator& comm) {
    if (rank == lost) {
      ring_[static_cast<std::size_t>(rank)].reset();
      return;
    }
    std::vector<float> data(1000000);
    const absl::Status status = comm.all_reduce(raw(data), data.size(), DType::kFloat32, ReduceOp::kSum).wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(fmt::format("rank {} ", lost)));
  });
}

TEST_P(CollectivesTest, EndingTogetherIsNoError) {
  on_every_rank(ring_, [](int, Communicator& comm) {
    ASSERT_TRUE(comm.barrier().wait().ok());
    const absl::Status status = comm.finalize(std::chrono::seconds(20));
    EXPECT_TRUE(status.ok()) << status;
  });
}

TEST_P(CollectivesTest, ARankThatEndsEarlyIsNamedWithTheRemedy) {
  if (num_ranks() == 1) {
    return;
  }
  on_every_rank(ring_, [](int rank, Communicator& comm) {
    if (rank == 0) {
      (void)comm.finalize(std::chrono::seconds(20));
      return;
    }
    std::vector<float> data(1000);
    const absl::Status status = comm.all_reduce(raw(data), data.size(), DType::kFloat32, ReduceOp::kSum).wait();
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("join()"));
  });
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<int, InprocKind>>& info) {
  constexpr std::array<const char*, 3> kNames{"Shm", "Stream", "Mixed"};
  return fmt::format("{}ranks{}", std::get<0>(info.param), kNames[static_cast<std::size_t>(std::get<1>(info.param))]);
}

INSTANTIATE_TEST_SUITE_P(All, CollectivesTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5),
                                            ::testing::Values(InprocKind::kSharedMemory, InprocKind::kStream, InprocKind::kMixed)),
                         name_of_case);

TEST(PacingTest, RanksAgreeOnTheAlgorithmWhenOnlyOneEdgeIsPaced) {
  auto ends = make_inproc_connections(2, InprocKind::kStream, base::Bandwidth{50e6});
  ASSERT_TRUE(ends.ok());
  for (Connections& end : *ends) {
    end.ring.edge_bandwidth[0] = {};
  }
  std::vector<std::jthread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      auto comm = communicator_over(r, std::move((*ends)[static_cast<std::size_t>(r)]), {});
      ASSERT_TRUE(comm.ok()) << comm.status();
      std::vector<float> data(100, 1.0F);
      EXPECT_TRUE((*comm)->all_reduce(raw(data), data.size(), DType::kFloat32, ReduceOp::kSum).wait_for(std::chrono::seconds(30)).ok());
      EXPECT_TRUE(all_equal(data, 2));
      EXPECT_TRUE((*comm)->finalize(std::chrono::seconds(30)).ok());
    });
  }
}

TEST(PacingTest, APacedEdgeDeliversTheSameResult) {
  auto ring = make_inproc_ring(3, InprocKind::kStream, {}, base::Bandwidth{50e6});
  ASSERT_TRUE(ring.ok()) << ring.status();
  on_every_rank(*ring, [](int rank, Communicator& comm) {
    std::vector<float> data(400000, static_cast<float>(rank));
    ASSERT_TRUE(comm.all_reduce(raw(data), data.size(), DType::kFloat32, ReduceOp::kSum).wait().ok());
    EXPECT_TRUE(all_equal(data, 3.0F));
  });
}

}  // namespace
}  // namespace maypole::comm
