// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/ring_communicator.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/comm/all_reduce.h"
#include "maypole/comm/ring_all_gather.h"
#include "maypole/comm/ring_reduce_scatter.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

namespace maypole::comm {

namespace {

using base::DType;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kExchangeLimit = std::size_t{64} << 10;
constexpr std::size_t kProbeBytes = std::size_t{128} << 10;

/// Kinds of user operations, so that ranks that call different ones find out.
enum class UserKind : std::uint32_t {
  kAllReduceSum = 1,
  kAllReduceAverage,
  kReduceScatterSum,
  kReduceScatterAverage,
  kAllGather,
  kBroadcast,
  kGroup
};

class RingCommunicator : public Communicator {
 public:
  RingCommunicator(int rank, int num_ranks, std::unique_ptr<Progress> progress)
      : rank_(rank), num_ranks_(num_ranks), progress_(std::move(progress)) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int num_ranks() const override { return num_ranks_; }

  absl::StatusOr<std::shared_ptr<SharedMemory>> allocate(std::size_t bytes) override {
    MAYPOLE_ASSIGN_OR_RETURN(auto region, progress_->make_region(bytes));
    return std::static_pointer_cast<SharedMemory>(std::move(region));
  }

  Work reduce_scatter_group(const ReduceScatterOp& op) override {
    if (op.dtype == DType::kByte) {
      return refuse_bytes();
    }
    const FrameHeader header =
        tagged(FrameKind::kReduceScatter, op.tag, fingerprint(op.range, op.dtype, op.wire, static_cast<std::uint32_t>(UserKind::kGroup)));
    const auto order = static_cast<std::int64_t>(reduce_order_.fetch_add(1));
    return start(Lane::kReduceScatter, order, [=, this](const Work& work) {
      return std::make_unique<RingReduceScatter>(context(), header, work, RingReduceScatter::Buffers{op.data, op.data},
                                                 group_map(op.range, op.dtype), op.dtype, op.wire, op.op);
    });
  }

  Work open_all_gather(const AllGatherOp& op) override {
    const FrameHeader header =
        tagged(FrameKind::kAllGather, op.tag, fingerprint(op.range, op.dtype, op.wire, static_cast<std::uint32_t>(UserKind::kGroup)));
    return start(Lane::kAllGather, op.priority, [=, this](const Work& work) {
      return std::make_unique<RingAllGather>(context(), header, work, op.data, group_map(op.range, op.dtype), op.dtype, op.wire);
    });
  }

  void supply_all_gather(std::uint64_t tag) override {
    if (num_ranks_ == 1) {
      return;
    }
    progress_->post([this, tag] {
      Collective* gather = progress_->lane_on_loop(Lane::kAllGather).find(tag);
      if (gather != nullptr) {  // null: it has failed
        static_cast<RingAllGather*>(gather)->supply_all();
        progress_->moved_on_loop();
      }
    });
  }

  Work all_reduce(std::byte* data, std::size_t count, DType dtype, ReduceOp op) override {
    if (dtype == DType::kByte) {
      return refuse_bytes();
    }
    const std::size_t bytes = count * size_of(dtype);
    const auto kind = op == ReduceOp::kAverage ? UserKind::kAllReduceAverage : UserKind::kAllReduceSum;
    if (use_exchange(bytes, 2)) {
      return exchange(kind, 0, count, dtype, {data, bytes}, sum_into(count, dtype), [=, this](const std::byte* vector) {
        std::copy_n(vector, bytes, data);
        if (op == ReduceOp::kAverage) {
          context().kernels->scale(dtype, data, count, 1.0 / num_ranks_);
        }
      });
    }
    const FrameHeader header = next_user(kind, count, dtype);
    return start(Lane::kUser, 0, [=, this](const Work& work) {
      return std::make_unique<RingAllReduce>(context(), header, work, data, buffer_map(count, dtype), dtype, op);
    });
  }

  Work reduce_scatter(const std::byte* input, std::size_t count, std::byte* output, DType dtype, ReduceOp op) override {
    const std::size_t bytes = count * size_of(dtype);
    const model::Interval own = model::chunk_of(count, context().position.rank, context().position.num_ranks);
    if (dtype == DType::kByte) {
      return refuse_bytes();
    }
    const auto kind = op == ReduceOp::kAverage ? UserKind::kReduceScatterAverage : UserKind::kReduceScatterSum;
    if (num_ranks_ == 1) {
      if (bytes > 0) {  // empty buffers may be null
        std::memmove(output, input, bytes);
      }
      return Work::finished(absl::OkStatus());
    }
    if (use_exchange(bytes, 1)) {
      return exchange(kind, 0, count, dtype, {input, bytes}, sum_into(count, dtype), [=, this](const std::byte* vector) {
        std::copy_n(vector + own.begin * size_of(dtype), own.size() * size_of(dtype), output);
        if (op == ReduceOp::kAverage) {
          context().kernels->scale(dtype, output, own.size(), 1.0 / num_ranks_);
        }
      });
    }
    const FrameHeader header = next_user(kind, count, dtype);
    std::byte* whole = output == nullptr ? nullptr : output - own.begin * size_of(dtype);  // null where the own chunk is empty
    return start(Lane::kUser, 0, [=, this](const Work& work) {
      return std::make_unique<RingReduceScatter>(context(), header, work, RingReduceScatter::Buffers{input, whole},
                                                 buffer_map(count, dtype), dtype, dtype, op);
    });
  }

  Work all_gather(std::byte* data, std::size_t count, DType dtype) override {
    const std::size_t bytes = count * size_of(dtype);
    if (use_exchange(bytes, 1)) {
      const model::Interval own = model::chunk_of(count, context().position.rank, context().position.num_ranks);
      return gather_by_exchange(UserKind::kAllGather, 0, count, dtype, data, own.begin * size_of(dtype), own.size() * size_of(dtype));
    }
    const FrameHeader header = next_user(UserKind::kAllGather, count, dtype);
    return start(Lane::kUser, 0, [=, this](const Work& work) {
      auto gather = std::make_unique<RingAllGather>(context(), header, work, data, buffer_map(count, dtype), dtype, dtype);
      gather->supply_all();
      return gather;
    });
  }

  Work broadcast(std::byte* data, std::size_t bytes, int root) override {
    if (root < 0 || root >= num_ranks_) {
      return Work::finished(
          base::error(absl::StatusCode::kInvalidArgument, "broadcast from rank {}: there are ranks 0 to {}", root, num_ranks_ - 1));
    }
    if (use_exchange(bytes, 1)) {
      return gather_by_exchange(UserKind::kBroadcast, root, bytes, DType::kByte, data, 0, rank_ == root ? bytes : 0);
    }
    const FrameHeader header = next_user(UserKind::kBroadcast, bytes, DType::kByte, root);
    return start(Lane::kUser, 0, [=, this](const Work& work) {
      const auto map = ChunkMap::rooted(bytes, static_cast<std::size_t>(root), context().position.num_ranks, segment_bytes_for(bytes, 1));
      auto gather = std::make_unique<RingAllGather>(context(), header, work, data, map, DType::kByte, DType::kByte);
      gather->supply_all();
      return gather;
    });
  }

  Work barrier() override {
    // One byte that every rank has to contribute to; nobody holds all of them before all have come.
    auto byte = std::make_shared<std::array<std::byte, sizeof(float)>>();
    const Work work = all_reduce(byte->data(), 1, DType::kFloat32, ReduceOp::kSum);
    work.on_done([byte](const absl::Status&) {});
    return work;
  }

  void serve(std::function<absl::StatusOr<std::vector<std::byte>>(std::uint64_t)> provider) override {
    progress_->post([this, provider = std::move(provider)]() mutable { progress_->control_on_loop().set_provider(std::move(provider)); });
  }

  absl::StatusOr<std::vector<std::byte>> read_peer(int peer, std::uint64_t key, base::Nanoseconds limit) override {
    if (peer < 0 || peer >= num_ranks_ || peer == rank_) {
      return base::error(absl::StatusCode::kInvalidArgument, "rank {} cannot ask rank {}", rank_, peer);
    }
    const auto deadline = Clock::now() + limit;
    base::Nanoseconds pause = std::chrono::microseconds(200);
    while (true) {
      auto answer = std::make_shared<absl::StatusOr<std::vector<std::byte>>>(absl::UnknownError(""));
      const Work asked = Work::pending();
      progress_->post([this, peer, key, answer, asked] {
        if (progress_->failed_on_loop()) {
          asked.finish(progress_->status());
          return;
        }
        progress_->control_on_loop().ask(static_cast<std::size_t>(peer), key,
                                         [answer, asked](absl::StatusOr<std::vector<std::byte>> result) {
                                           *answer = std::move(result);
                                           asked.finish(absl::OkStatus());
                                         });
      });
      MAYPOLE_RETURN_IF_ERROR(asked.wait_for(deadline - Clock::now()));
      MAYPOLE_RETURN_IF_ERROR(progress_->status());
      if (answer->ok() || answer->status().code() != absl::StatusCode::kUnavailable || Clock::now() + pause >= deadline) {
        return std::move(*answer);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min<base::Nanoseconds>(pause * 2, std::chrono::milliseconds(20));
    }
  }

  void watch_caller(std::function<CallerState()> state) override {
    progress_->post([this, state = std::move(state)]() mutable { progress_->watch_caller_on_loop(std::move(state)); });
  }

  void abort(absl::Status reason) override {
    progress_->post([this, reason = std::move(reason)] { progress_->fail_on_loop(reason, true); });
  }

  absl::Status finalize(base::Nanoseconds limit) override {
    if (num_ranks_ == 1) {
      return absl::OkStatus();
    }
    const auto deadline = Clock::now() + limit;
    const Work ended = Work::pending();
    progress_->post([this, ended, deadline] {
      progress_->watch_on_loop([this, ended, deadline] {
        if (progress_->failed_on_loop()) {
          ended.finish(progress_->status());
          return true;
        }
        if (progress_->idle_on_loop()) {
          progress_->depart_on_loop();
          if (progress_->control_on_loop().all_departed() || progress_->unreachable_on_loop()) {
            ended.finish(absl::OkStatus());
            return true;
          }
        }
        if (Clock::now() >= deadline) {
          ended.finish(base::error(absl::StatusCode::kDeadlineExceeded, "still running after this rank's end: {}",
                                   progress_->control_on_loop().not_departed()));
          return true;
        }
        return false;
      });
    });
    return ended.wait();
  }

  [[nodiscard]] absl::Status status() const override { return progress_->status(); }
  void close_after_fork() override { progress_->close_after_fork(); }
  [[nodiscard]] EdgeCost edge_cost() const override { return cost_; }
  [[nodiscard]] TrafficCounters traffic() const override { return progress_->traffic(); }
  [[nodiscard]] std::string describe() const override {
    if (num_ranks_ == 1) {
      return "a world of one";
    }
    return fmt::format("rank {} of {}: {}; alpha {}, {:.4g} MB/s", rank_, num_ranks_, progress_->description(),
                       base::format_seconds(cost_.alpha_s), 1e-6 / cost_.beta_s_per_byte);
  }

  /// Times small and larger collectives; all ranks end with the same numbers, so all choose the same algorithms.
  absl::Status measure(base::Nanoseconds limit) {
    if (num_ranks_ == 1) {
      return absl::OkStatus();
    }
    constexpr int kRounds = 5;
    const double steps = 2.0 * (num_ranks_ - 1);
    std::array<float, 2>& cost = probe_cost_;
    probe_.resize(kProbeBytes);
    measuring_ = true;  // by ring, not by exchange
    for (int i = 0; i < kRounds; ++i) {
      const auto begin = Clock::now();
      MAYPOLE_RETURN_IF_ERROR(all_reduce(probe_.data(), 1, DType::kFloat32, ReduceOp::kSum).wait_for(limit));
      cost[0] = std::min(cost[0], static_cast<float>(base::to_seconds(Clock::now() - begin) / steps));
    }
    const std::size_t count = probe_.size() / sizeof(float);
    for (int i = 0; i < 2; ++i) {
      const auto begin = Clock::now();
      MAYPOLE_RETURN_IF_ERROR(all_gather(probe_.data(), count, DType::kFloat32).wait_for(limit));
      const double sent = static_cast<double>(probe_.size()) * (num_ranks_ - 1) / num_ranks_;
      cost[1] =
          std::min(cost[1], static_cast<float>(std::max(
                                1e-12, (base::to_seconds(Clock::now() - begin) - cost[0] * static_cast<float>(num_ranks_ - 1)) / sent)));
    }
    cost[1] = std::max(cost[1], static_cast<float>(progress_->paced_seconds_per_byte()));  // the probe is short, and may not be held back
    MAYPOLE_RETURN_IF_ERROR(all_reduce(reinterpret_cast<std::byte*>(cost.data()), 2, DType::kFloat32, ReduceOp::kAverage).wait_for(limit));
    cost_ = {cost[0], cost[1]};
    measuring_ = false;
    return absl::OkStatus();
  }

 private:
  [[nodiscard]] const CollectiveContext& context() const { return progress_->context(); }

  [[nodiscard]] ChunkMap group_map(const model::BlockRange& range, DType dtype) const {
    return ChunkMap::shared(range, context().position.num_ranks,
                            segment_bytes_for(range.size() * size_of(dtype), context().position.num_ranks) / size_of(dtype));
  }
  [[nodiscard]] ChunkMap buffer_map(std::size_t count, DType dtype) const { return group_map(model::whole_buffer(count), dtype); }

  [[nodiscard]] FrameHeader tagged(FrameKind kind, std::uint64_t sequence, std::uint32_t check) const {
    FrameHeader header;
    header.kind = kind;
    header.epoch = context().epoch;
    header.sequence = sequence;
    header.check = check;
    return header;
  }
  /// The next operation of the user lane; `root` only of a broadcast.
  FrameHeader next_user(UserKind kind, std::size_t count, DType dtype, int root = 0) {
    const std::uint32_t what = static_cast<std::uint32_t>(kind) + 16U * static_cast<std::uint32_t>(root);
    return tagged(FrameKind::kAllGather, user_sequence_.fetch_add(1), fingerprint(model::whole_buffer(count), dtype, dtype, what));
  }
  static Work refuse_bytes() {
    return Work::finished(absl::InvalidArgumentError("bytes can be gathered and broadcast, but not summed: pass a floating-point type"));
  }

  /// Starts what `make` makes on the progress thread. In a world of one there is nothing to do.
  template <typename Make>
  Work start(Lane lane, std::int64_t priority, Make make) {
    if (num_ranks_ == 1) {
      return Work::finished(absl::OkStatus());
    }
    if (lane == Lane::kUser) {
      const Work work = Work::pending(progress_->helper());
      progress_->start_user([this, work, make = std::move(make)] { progress_->start_on_loop(Lane::kUser, make(work), 0); });
      return work;
    }
    const Work work = Work::pending();
    progress_->post([this, lane, priority, work, make = std::move(make)] { progress_->start_on_loop(lane, make(work), priority); });
    return work;
  }

  /// Whether the logarithmic algorithm is the faster one for a collective of `halves` halves of an all-reduce.
  [[nodiscard]] bool use_exchange(std::size_t bytes, int halves) const {
    if (measuring_ || bytes > kExchangeLimit || progress_->paced() || !progress_->has_exchange_links()) {
      return false;
    }
    const auto p = static_cast<std::size_t>(num_ranks_);
    return exchange_is_faster(bytes, p, cost_, static_cast<std::size_t>(halves) * (p - 1),
                              halves * static_cast<double>(p - 1) / static_cast<double>(p));
  }

  Work exchange(UserKind kind, int root, std::size_t count, DType dtype, std::span<const std::byte> vector,
                std::function<void(std::byte*, const std::byte*)> merge, std::function<void(const std::byte*)> finish) {
    const FrameHeader header = next_user(kind, count, dtype, root);
    return start(Lane::kUser, 0, [=, this](const Work& work) {
      return std::make_unique<ExchangeAllReduce>(context(), header, work, vector, ExchangeAllReduce::Operation{merge, finish});
    });
  }

  [[nodiscard]] std::function<void(std::byte*, const std::byte*)> sum_into(std::size_t count, DType dtype) const {
    return [this, count, dtype](std::byte* into, const std::byte* other) { context().kernels->add(dtype, into, into, other, count); };
  }

  /// All-gather and broadcast as an OR of vectors that are zero outside the own part.
  Work gather_by_exchange(UserKind kind, int root, std::size_t count, DType dtype, std::byte* data, std::size_t own_begin,
                          std::size_t own_bytes) {
    const std::size_t total = count * size_of(dtype);
    auto vector = std::make_shared<std::vector<std::byte>>(total);
    if (own_bytes > 0) {
      std::copy_n(data + own_begin, own_bytes, vector->data() + own_begin);
    }
    const auto merge = [total](std::byte* into, const std::byte* other) {
      for (std::size_t i = 0; i < total; ++i) {
        into[i] |= other[i];
      }
    };
    return exchange(kind, root, count, dtype, *vector, merge, [data, total, vector](const std::byte* result) {
      if (total > 0) {
        std::copy_n(result, total, data);
      }
    });
  }

  const int rank_;
  const int num_ranks_;
  bool measuring_ = false;
  EdgeCost cost_{1e-5, 1e-9};
  std::atomic<std::uint64_t> reduce_order_{0};
  std::atomic<std::uint64_t> user_sequence_{0};
  std::vector<std::byte> probe_;  // of measure(): outlives the operations on it
  std::array<float, 2> probe_cost_{1, 1};
  std::unique_ptr<Progress> progress_;  // last: its thread uses what is above
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> communicator_over(int rank, Connections connections, const ProgressOptions& options) {
  const int num_ranks = std::max(1, static_cast<int>(connections.ring.members.size()));
  MAYPOLE_ASSIGN_OR_RETURN(auto progress, Progress::start(rank, std::move(connections), options));
  auto communicator = std::make_unique<RingCommunicator>(rank, num_ranks, std::move(progress));
  MAYPOLE_RETURN_IF_ERROR(communicator->measure(std::chrono::seconds(60)));
  return std::unique_ptr<Communicator>(std::move(communicator));
}

absl::StatusOr<std::unique_ptr<Communicator>> create_ring_communicator(const ConnectOptions& connect, const ProgressOptions& options) {
  MAYPOLE_ASSIGN_OR_RETURN(Connections connections, connect_ring(connect));
  return communicator_over(connect.rank, std::move(connections), options);
}

}  // namespace maypole::comm
