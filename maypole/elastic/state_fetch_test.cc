// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/state_fetch.h"

#include "maypole/base/fd.h"
#include "maypole/elastic/state_source.h"
#include "maypole/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>

namespace maypole::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint32_t kEpoch = 3;
constexpr std::size_t kPiece = std::size_t{1} << 20;
const net::Credentials kCredentials = {.secret = "s", .context = "job state"};

/// What a worker holds: parts of several pieces, of one byte and of none.
struct State {
  explicit State(std::uint8_t seed) {
    for (const std::size_t size : {3 * kPiece, std::size_t{1}, std::size_t{0}, 2 * kPiece + 7, std::size_t{4097}}) {
      std::vector<std::byte>& part = parts.emplace_back(size);
      for (std::size_t i = 0; i < size; ++i) {
        part[i] = static_cast<std::byte>(seed + i % 251 + i / 4096);
      }
    }
  }
  [[nodiscard]] StatePieces pieces(std::uint64_t layout = 1) {
    std::vector<std::span<std::byte>> spans(parts.begin(), parts.end());
    return {spans, layout};
  }
  [[nodiscard]] std::size_t bytes() const {
    return std::accumulate(parts.begin(), parts.end(), std::size_t{0}, [](std::size_t sum, const auto& part) { return sum + part.size(); });
  }
  std::vector<std::vector<std::byte>> parts;
};
constexpr std::size_t kNumPieces = 3 + 1 + 3 + 1;

base::Fd listener() { return *net::listen_tcp(*net::SocketAddress::parse("127.0.0.1", 0)); }
FetchSource source_at(const base::Fd& fd, std::uint32_t rank) { return {rank, net::local_address_of(fd.get()).to_string()}; }
FetchOptions options() {
  return {.credentials = kCredentials, .epoch = kEpoch, .rank = 9, .interface = "", .silence = std::chrono::seconds(60)};
}

/// Answers `good` questions as a source does, and then does something else.
class FaultySource {
 public:
  enum class Fault : std::uint8_t { kEnds, kDamages, kSaysNothing };

  FaultySource(State& state, std::size_t good, Fault fault)
      : listener_(listener()),
        stop_(*net::make_socket_pair()),
        thread_([this, &state, good, fault] { serve(state.pieces(), good, fault); }) {}
  ~FaultySource() { stop_.first.reset(); }
  FaultySource(const FaultySource&) = delete;
  FaultySource& operator=(const FaultySource&) = delete;

  [[nodiscard]] FetchSource address() const { return source_at(listener_, 7); }

 private:
  void serve(const StatePieces& pieces, std::size_t good, Fault fault) const {
    const auto later = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    net::ProvingAcceptor acceptor({.listeners = {listener_.get()}, .credentials = kCredentials});
    auto event = acceptor.next(later, {});
    const int fd = event->connection.fd.get();
    const PiecesOffer offer{pieces.layout(), pieces.size()};
    (void)net::send_all(fd, std::as_bytes(std::span(&offer, 1)), later, "");
    for (std::size_t k = 0; k <= good; ++k) {
      PieceRequest request;
      if (!net::receive_all(fd, std::as_writable_bytes(std::span(&request, 1)), later, "").ok()) {
        return;  // the other source gave the rest
      }
      if (k == good && fault == Fault::kEnds) {
        return;
      }
      if (k == good && fault == Fault::kSaysNothing) {
        (void)net::wait_ready(stop_.second.get(), POLLIN, later, "");
        return;
      }
      const std::span<std::byte> piece = pieces[request.index];
      const PieceAnswer answer{request.index, digest_of(piece) + (k == good ? 1 : 0), piece.size()};
      (void)net::send_all(fd, std::as_bytes(std::span(&answer, 1)), later, "");
      (void)net::send_all(fd, piece, later, "");
    }
    (void)net::wait_ready(stop_.second.get(), POLLIN, later, "");
  }

  base::Fd listener_;
  net::SocketPair stop_;
  std::jthread thread_;
};

/// Two good sources of one state, and someone who has another one.
class StateFetchTest : public ::testing::Test {
 protected:
  StateFetchTest() : state_(1), mine_(2) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      listeners_.push_back(listener());
      addresses_.push_back(source_at(listeners_.back(), rank));
      sources_.push_back(std::make_unique<StateSource>(
          StateSource::Options{.listener = listeners_.back().get(), .credentials = kCredentials, .epoch = kEpoch}, state_.pieces()));
    }
  }
  [[nodiscard]] absl::StatusOr<FetchReport> fetch(const std::vector<FetchSource>& from) {
    return fetch_state(options(), from, mine_.pieces());
  }

  State state_;
  State mine_;
  std::vector<base::Fd> listeners_;
  std::vector<FetchSource> addresses_;
  std::vector<std::unique_ptr<StateSource>> sources_;
};

TEST_F(StateFetchTest, EveryPieceComesFromOneOfTheSources) {
  const auto report = fetch(addresses_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(mine_.parts, state_.parts);
  EXPECT_EQ(report->bytes_from[0] + report->bytes_from[1], state_.bytes());
  EXPECT_EQ(report->bytes_kept, 0);
  EXPECT_THAT(report->lost, IsEmpty());
}

TEST_F(StateFetchTest, WhatIsThereAlreadyIsNotSent) {
  ASSERT_TRUE(fetch(addresses_).ok());
  mine_.parts[3][kPiece + 5] ^= std::byte{1};
  const auto report = fetch({addresses_[0]});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(mine_.parts, state_.parts);
  EXPECT_THAT(report->bytes_from, ElementsAre(kPiece));
  EXPECT_EQ(report->bytes_kept, state_.bytes() - kPiece);
}

TEST_F(StateFetchTest, SeveralNewcomersFetchAtOnce) {
  std::vector<State> states(3, State(2));
  {
    std::vector<std::jthread> newcomers;
    newcomers.reserve(states.size());
    for (State& state : states) {
      newcomers.emplace_back([&] { EXPECT_TRUE(fetch_state(options(), addresses_, state.pieces()).ok()); });
    }
  }
  for (const State& state : states) {
    EXPECT_EQ(state.parts, state_.parts);
  }
}

TEST_F(StateFetchTest, ASourceThatDiesIsMadeUpForByTheOthersWhereverItHappens) {
  for (const std::size_t good : {std::size_t{0}, std::size_t{1}, kNumPieces / 2, kNumPieces - 1}) {
    for (const auto fault : {FaultySource::Fault::kEnds, FaultySource::Fault::kDamages}) {
      mine_ = State(2);
      FaultySource faulty(state_, good, fault);
      const auto report = fetch({faulty.address(), addresses_[1]});
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(mine_.parts, state_.parts);
      EXPECT_EQ(report->bytes_from[0] + report->bytes_from[1] + report->bytes_kept, state_.bytes());
    }
  }
}

TEST_F(StateFetchTest, ASourceThatSaysNothingIsLeft) {
  FaultySource frozen(state_, 1, FaultySource::Fault::kSaysNothing);
  FetchOptions impatient = options();
  impatient.silence = std::chrono::milliseconds(300);
  const auto alone = fetch_state(impatient, {frozen.address()}, mine_.pieces());
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(alone.status().message(), HasSubstr("no source of the state is left"));
}

TEST_F(StateFetchTest, WhatALostSourceHasGivenIsKeptForTheNextTry) {
  {
    FaultySource faulty(state_, 2, FaultySource::Fault::kEnds);
    EXPECT_FALSE(fetch({faulty.address()}).ok());
  }
  const auto report = fetch({addresses_[0]});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(mine_.parts, state_.parts);
  EXPECT_EQ(report->bytes_kept, 2 * kPiece);
}

TEST_F(StateFetchTest, StrangersAndMembersOfAnotherRingGetNothing) {
  FetchOptions wrong = options();
  wrong.credentials.secret = "t";
  EXPECT_FALSE(fetch_state(wrong, addresses_, mine_.pieces()).ok());
  wrong = options();
  wrong.epoch = kEpoch - 1;
  EXPECT_FALSE(fetch_state(wrong, addresses_, mine_.pieces()).ok());
  EXPECT_EQ(mine_.parts, State(2).parts);
}

TEST_F(StateFetchTest, AStateOfAnotherLayoutIsNotTaken) {
  const auto report = fetch_state(options(), addresses_, mine_.pieces(2));
  EXPECT_THAT(report.status().message(), HasSubstr("another layout"));
  EXPECT_EQ(mine_.parts, State(2).parts);
}

TEST_F(StateFetchTest, AStateWithoutPiecesIsThereAtOnce) {
  const auto report = fetch_state(options(), {}, StatePieces({}, 1));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->bytes_from, SizeIs(0));
}

TEST(StatePiecesTest, ADigestDependsOnEveryBitAndOnTheLength) {
  std::vector<std::byte> bytes(300);
  std::vector<std::uint64_t> digests = {digest_of(bytes), digest_of(std::span(bytes).first(299)), digest_of({})};
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    digests.push_back(digest_of(bytes));
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
  }
  std::ranges::sort(digests);
  EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end());
}

}  // namespace
}  // namespace maypole::elastic
