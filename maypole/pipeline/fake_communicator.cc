// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/fake_communicator.h"

#include "maypole/base/check.h"
#include "maypole/base/mutex.h"
#include "maypole/base/status.h"
#include "maypole/pipeline/half.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <utility>

namespace maypole::pipeline {
namespace {

double load(base::DType dtype, const std::byte* data, std::size_t k) {
  switch (dtype) {
    case base::DType::kFloat32:
      return reinterpret_cast<const float*>(data)[k];
    case base::DType::kFloat64:
      return reinterpret_cast<const double*>(data)[k];
    case base::DType::kBFloat16:
      return widen(reinterpret_cast<const BFloat16*>(data)[k]);
    case base::DType::kFloat16:
      return widen(reinterpret_cast<const _Float16*>(data)[k]);
    case base::DType::kByte:
      break;
  }
  return 0;
}

void store(base::DType dtype, std::byte* data, std::size_t k, double value) {
  switch (dtype) {
    case base::DType::kFloat32:
      reinterpret_cast<float*>(data)[k] = static_cast<float>(value);
      break;
    case base::DType::kFloat64:
      reinterpret_cast<double*>(data)[k] = value;
      break;
    case base::DType::kBFloat16:
      narrow(static_cast<float>(value), reinterpret_cast<BFloat16*>(data)[k]);
      break;
    case base::DType::kFloat16:
      narrow(static_cast<float>(value), reinterpret_cast<_Float16*>(data)[k]);
      break;
    case base::DType::kByte:
      break;
  }
}

class HeapMemory final : public comm::SharedMemory {
 public:
  explicit HeapMemory(std::size_t bytes) : words_(bytes / sizeof(std::uint64_t) + 1), bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return {reinterpret_cast<std::byte*>(words_.data()), bytes_}; }

 private:
  mutable std::vector<std::uint64_t> words_;
  std::size_t bytes_;
};

struct UserOperation {
  std::function<void(std::size_t rank)> check;
  enum class Kind { kAllReduce, kBroadcast, kBarrier } kind = Kind::kBarrier;
  std::byte* data = nullptr;
  std::size_t count = 0;
  base::DType dtype = base::DType::kByte;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  int root = 0;
  comm::Work work = comm::Work::pending();
};

struct ReduceScatter {
  comm::ReduceScatterOp op;
  comm::Work work = comm::Work::pending();
};

struct AllGather {
  comm::AllGatherOp op;
  bool supplied = false;
  std::size_t received = 0;  // pieces from peers
  std::size_t sent = 0;      // own piece to peers
  comm::Work work = comm::Work::pending();
};

/// What all ranks share.
class Network {
 public:
  Network(int num_ranks, unsigned seed) : num_ranks_(static_cast<std::size_t>(num_ranks)), random_(seed), ranks_(num_ranks_) {
    for (Rank& rank : ranks_) {
      rank.delivered.assign(num_ranks_, 0);
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Network() {
    thread_.request_stop();
    changed_.notify_all();
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  template <typename Change>
  void post(Change change) {
    {
      base::MutexLock lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  comm::Work reduce_scatter(int rank, const comm::ReduceScatterOp& op) {
    ReduceScatter operation{op};
    return admit(operation.work, [&] { at(rank).reduces.push_back(operation); });
  }
  comm::Work open(int rank, const comm::AllGatherOp& op) {
    AllGather operation{op};
    return admit(operation.work, [&] {
      mutex_.assert_held();
      MAYPOLE_CHECK(ranks_[static_cast<std::size_t>(rank)].gathers.emplace(op.tag, operation).second);
    });
  }
  void supply(int rank, std::uint64_t tag) {
    post([&] {
      mutex_.assert_held();
      Rank& r = at(rank);
      if (error_.ok()) {
        r.gathers.at(tag).supplied = true;
        r.supplied.push_back(tag);
        if (num_ranks_ == 1) {
          finished_.push_back({r.gathers.at(tag).work, absl::OkStatus()});
          r.gathers.erase(tag);
        }
      }
    });
  }
  comm::Work user(int rank, const UserOperation& operation) {
    return admit(operation.work, [&] { at(rank).users.push_back(operation); });
  }

  void abort(absl::Status reason) {
    post([&] {
      mutex_.assert_held();
      fail(std::move(reason));
    });
  }
  absl::Status status() {
    base::MutexLock lock(mutex_);
    return error_;
  }

  void serve(int rank, std::function<absl::StatusOr<std::vector<std::byte>>(std::uint64_t)> provider) {
    base::MutexLock lock(mutex_);
    at(rank).provider = std::move(provider);
  }
  absl::StatusOr<std::vector<std::byte>> ask(int rank, std::uint64_t key, base::Nanoseconds limit) {
    const base::TimePoint deadline = std::chrono::steady_clock::now() + limit;
    while (true) {
      absl::StatusOr<std::vector<std::byte>> answer = absl::UnavailableError("nobody serves");
      {
        base::MutexLock lock(mutex_);
        if (at(rank).provider) {
          answer = at(rank).provider(key);
        }
      }
      if (answer.ok() || answer.status().code() != absl::StatusCode::kUnavailable) {
        return answer;
      }
      if (std::chrono::steady_clock::now() > deadline) {
        return absl::DeadlineExceededError(answer.status().message());
      }
      std::this_thread::yield();
    }
  }

  absl::Status finalize(base::Nanoseconds limit) {
    const base::TimePoint deadline = std::chrono::steady_clock::now() + limit;
    base::MutexLock lock(mutex_);
    ++finalized_;
    changed_.notify_all();
    while (finalized_ < num_ranks_ && error_.ok()) {
      if (!changed_.wait_until(mutex_, deadline)) {
        return absl::DeadlineExceededError("not all ranks have said goodbye");
      }
    }
    return finalized_ == num_ranks_ ? absl::OkStatus() : error_;
  }
  /// Rank's communicator goes away: nothing of it may be touched or called any more.
  void leave(int rank) {
    mutex_.lock();
    at(rank).provider = nullptr;
    fail(absl::UnavailableError("a rank has left"));
    while (finishing_) {
      changed_.wait(mutex_);
    }
    finish_all(std::exchange(finished_, {}));
    mutex_.unlock();
  }

 private:
  struct Rank {
    std::deque<ReduceScatter> reduces;
    std::map<std::uint64_t, AllGather> gathers;
    std::vector<std::uint64_t> supplied;  // tags in the order in which they were supplied
    std::vector<std::size_t> delivered;   // [receiver]: how many of `supplied` have gone there
    std::deque<UserOperation> users;
    std::function<absl::StatusOr<std::vector<std::byte>>(std::uint64_t)> provider;
  };
  struct Finish {
    comm::Work work;
    absl::Status outcome;
  };

  Rank& at(int rank) ABSL_NO_THREAD_SAFETY_ANALYSIS { return ranks_[static_cast<std::size_t>(rank)]; }

  template <typename Add>
  comm::Work admit(const comm::Work& work, Add add) {
    absl::Status refused;
    post([&] {
      mutex_.assert_held();
      refused = error_;
      if (refused.ok()) {
        add();
      }
    });
    if (!refused.ok()) {
      work.finish(refused);
    }
    return work;
  }

  void fail(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (error_.ok()) {
      error_ = std::move(reason);
    }
    for (Rank& rank : ranks_) {
      for (const ReduceScatter& each : rank.reduces) {
        finished_.push_back({each.work, error_});
      }
      for (const auto& each : rank.gathers) {
        finished_.push_back({each.second.work, error_});
      }
      for (const UserOperation& each : rank.users) {
        finished_.push_back({each.work, error_});
      }
      rank.reduces.clear();
      rank.gathers.clear();
      rank.users.clear();
    }
  }

  /// Calls back into the engines, without the mutex; no rank leaves meanwhile.
  void finish_all(const std::vector<Finish>& finishes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finishing_ = true;
    mutex_.unlock();
    for (const Finish& each : finishes) {
      each.work.finish(each.outcome);
    }
    for (unsigned pause = 0; pause < finishes.size() % 3; ++pause) {
      std::this_thread::yield();
    }
    mutex_.lock();
    finishing_ = false;
    changed_.notify_all();
  }

  void run(const std::stop_token& stop) {
    mutex_.lock();
    while (!stop.stop_requested()) {
      if (!finished_.empty() && !finishing_) {
        std::vector<Finish> finishes;
        if (random_() % 2 == 0 || !error_.ok()) {
          finishes.swap(finished_);
          std::ranges::shuffle(finishes, random_);
        } else {  // let the others end later
          const std::size_t k = random_() % finished_.size();
          finishes.push_back(finished_[k]);
          finished_.erase(finished_.begin() + static_cast<std::ptrdiff_t>(k));
        }
        finish_all(finishes);
        continue;
      }
      std::vector<std::function<void()>> possible = possible_pieces();
      if (possible.empty()) {
        changed_.wait_until(mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
      } else {
        possible[random_() % possible.size()]();
      }
    }
    mutex_.unlock();
  }

  std::vector<std::function<void()>> possible_pieces() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::function<void()>> possible;
    if (std::ranges::none_of(ranks_, [](const Rank& r) { return r.reduces.empty(); })) {
      possible.push_back([this] { reduce_piece(); });
    }
    if (std::ranges::none_of(ranks_, [](const Rank& r) { return r.users.empty(); })) {
      possible.push_back([this] { run_user(); });
    }
    for (std::size_t from = 0; from < num_ranks_; ++from) {
      for (std::size_t to = 0; to < num_ranks_; ++to) {
        mutex_.assert_held();
        const std::size_t next = ranks_[from].delivered[to];
        if (from != to && next < ranks_[from].supplied.size() && ranks_[to].gathers.contains(ranks_[from].supplied[next])) {
          possible.push_back([this, from, to] { gather_piece(from, to); });
        }
      }
    }
    return possible;
  }

  /// One chunk of the oldest reduce-scatter; chunks in ascending order, which is as good as any other here.
  void reduce_piece() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const comm::ReduceScatterOp& first = ranks_[0].reduces.front().op;
    for (const Rank& rank : ranks_) {
      if (!(rank.reduces.front().op.range == first.range) || rank.reduces.front().op.dtype != first.dtype) {
        fail(absl::FailedPreconditionError("reduce-scatters differ"));
        return;
      }
    }
    const std::size_t c = reduced_chunks_++;
    for (std::size_t b = 0; b < first.range.num_blocks(); ++b) {
      const model::Interval chunk = first.range.chunk_at(b, c, num_ranks_);
      for (std::size_t e = chunk.begin; e < chunk.end; ++e) {
        double sum = 0;
        for (const Rank& rank : ranks_) {
          sum += load(first.dtype, rank.reduces.front().op.data, e);
        }
        store(first.dtype, ranks_[c].reduces.front().op.data, e, sum / static_cast<double>(num_ranks_));
      }
    }
    if (reduced_chunks_ == num_ranks_) {
      reduced_chunks_ = 0;
      for (Rank& rank : ranks_) {
        finished_.push_back({rank.reduces.front().work, absl::OkStatus()});
        rank.reduces.pop_front();
      }
    }
  }

  void gather_piece(std::size_t from, std::size_t to) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const std::uint64_t tag = ranks_[from].supplied[ranks_[from].delivered[to]++];
    AllGather& source = ranks_[from].gathers.at(tag);
    AllGather& target = ranks_[to].gathers.at(tag);
    const std::size_t size = base::size_of(source.op.dtype);
    for (std::size_t b = 0; b < source.op.range.num_blocks(); ++b) {
      const model::Interval chunk = source.op.range.chunk_at(b, from, num_ranks_);
      std::memcpy(target.op.data + chunk.begin * size, source.op.data + chunk.begin * size, chunk.size() * size);
    }
    ++source.sent;
    ++target.received;
    for (const std::size_t rank : {from, to}) {
      const AllGather& each = ranks_[rank].gathers.at(tag);
      if (each.supplied && each.sent == num_ranks_ - 1 && each.received == num_ranks_ - 1) {
        finished_.push_back({each.work, absl::OkStatus()});
        ranks_[rank].gathers.erase(tag);
      }
    }
  }

  void run_user() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const UserOperation& first = ranks_[0].users.front();
    for (const Rank& rank : ranks_) {
      if (rank.users.front().count != first.count || rank.users.front().kind != first.kind) {
        fail(absl::FailedPreconditionError("user operations differ"));
        return;
      }
    }
    if (first.kind == UserOperation::Kind::kAllReduce) {
      for (std::size_t e = 0; e < first.count; ++e) {
        double sum = 0;
        for (const Rank& rank : ranks_) {
          sum += load(first.dtype, rank.users.front().data, e);
        }
        sum = first.op == comm::ReduceOp::kAverage ? sum / static_cast<double>(num_ranks_) : sum;
        for (const Rank& rank : ranks_) {
          store(first.dtype, rank.users.front().data, e, sum);
        }
      }
    } else if (first.kind == UserOperation::Kind::kBroadcast) {
      const std::byte* source = ranks_[static_cast<std::size_t>(first.root)].users.front().data;
      for (const Rank& rank : ranks_) {
        if (rank.users.front().data != source) {
          std::memcpy(rank.users.front().data, source, first.count);
        }
      }
    }
    for (Rank& rank : ranks_) {
      finished_.push_back({rank.users.front().work, absl::OkStatus()});
      rank.users.pop_front();
    }
  }

  const std::size_t num_ranks_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::mt19937 random_ ABSL_GUARDED_BY(mutex_);
  std::vector<Rank> ranks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Finish> finished_ ABSL_GUARDED_BY(mutex_);
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t reduced_chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t finalized_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

class FakeCommunicator final : public comm::Communicator {
 public:
  FakeCommunicator(std::shared_ptr<Network> network, int rank, int num_ranks, GatherWatch watch, SupplyGate gate)
      : network_(std::move(network)), rank_(rank), num_ranks_(num_ranks), watch_(std::move(watch)), gate_(std::move(gate)) {}
  ~FakeCommunicator() override { network_->leave(rank_); }
  FakeCommunicator(const FakeCommunicator&) = delete;
  FakeCommunicator& operator=(const FakeCommunicator&) = delete;

  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  absl::StatusOr<std::shared_ptr<comm::SharedMemory>> allocate(std::size_t bytes) override { return std::make_shared<HeapMemory>(bytes); }
  comm::Work reduce_scatter_group(const comm::ReduceScatterOp& op) override { return network_->reduce_scatter(rank_, op); }
  comm::Work open_all_gather(const comm::AllGatherOp& op) override {
    if (watch_) {
      watch_(rank_, op);
    }
    return network_->open(rank_, op);
  }
  void supply_all_gather(std::uint64_t tag) override {
    if (!gate_ || gate_(rank_, tag)) {
      network_->supply(rank_, tag);
    }
  }
  comm::Work all_reduce(std::byte* data, std::size_t count, base::DType dtype, comm::ReduceOp op) override {
    UserOperation operation;
    operation.kind = UserOperation::Kind::kAllReduce;
    operation.data = data;
    operation.count = count;
    operation.dtype = dtype;
    operation.op = op;
    return network_->user(rank_, operation);
  }
  comm::Work reduce_scatter(const std::byte*, std::size_t, std::byte*, base::DType, comm::ReduceOp) override {
    return comm::Work::finished(absl::UnimplementedError("the engine does not use it"));
  }
  comm::Work all_gather(std::byte*, std::size_t, base::DType) override {
    return comm::Work::finished(absl::UnimplementedError("the engine does not use it"));
  }
  comm::Work broadcast(std::byte* data, std::size_t bytes, int root) override {
    UserOperation operation;
    operation.kind = UserOperation::Kind::kBroadcast;
    operation.data = data;
    operation.count = bytes;
    operation.root = root;
    return network_->user(rank_, operation);
  }
  comm::Work barrier() override { return network_->user(rank_, UserOperation{}); }
  void watch_caller(std::function<comm::CallerState()>) override {}
  void serve(std::function<absl::StatusOr<std::vector<std::byte>>(std::uint64_t)> provider) override {
    network_->serve(rank_, std::move(provider));
  }
  absl::StatusOr<std::vector<std::byte>> read_peer(int peer, std::uint64_t key, base::Nanoseconds deadline) override {
    return network_->ask(peer, key, deadline);
  }
  void abort(absl::Status reason) override { network_->abort(std::move(reason)); }
  absl::Status finalize(base::Nanoseconds limit) override { return network_->finalize(limit); }
  absl::Status status() const override { return network_->status(); }
  void close_after_fork() override {}
  comm::EdgeCost edge_cost() const override { return {1e-5, 1e-9}; }
  comm::TrafficCounters traffic() const override { return {}; }
  std::string describe() const override { return "fake"; }

 private:
  std::shared_ptr<Network> network_;  // shared by all ranks: the last one to leave takes it along
  int rank_;
  int num_ranks_;
  GatherWatch watch_;
  SupplyGate gate_;
};

}  // namespace

std::vector<std::unique_ptr<comm::Communicator>> make_fake_ring(int num_ranks, unsigned seed, const GatherWatch& watch,
                                                                const SupplyGate& gate) {
  const auto network = std::make_shared<Network>(num_ranks, seed);
  std::vector<std::unique_ptr<comm::Communicator>> ring;
  for (int r = 0; r < num_ranks; ++r) {
    ring.push_back(std::make_unique<FakeCommunicator>(network, r, num_ranks, watch, gate));
  }
  return ring;
}

}  // namespace maypole::pipeline
