// SPDX-License-Identifier: Apache-2.0
//
// Maypole's own ring, measured as collective_cases.h says. Started by `maypole run`; reads the worker environment.
// Where the neighbours share memory it works in place in the arena.

#include "benchmarks/collective_cases.h"
#include "maypole/base/status.h"
#include "maypole/comm/communicator.h"
#include "maypole/comm/environment.h"
#include "maypole/comm/ring_communicator.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>

namespace {

using maypole::base::DType;
using maypole::comm::ReduceOp;

void check(const absl::Status& status) {
  if (!status.ok()) {
    fmt::print(stderr, "bench_ring: {}\n", maypole::base::message(status));
    std::exit(1);
  }
}

std::byte* bytes_of(float* data) { return reinterpret_cast<std::byte*>(data); }

class MaypoleRing final : public maypole::benchmarks::CollectivePeer {
 public:
  explicit MaypoleRing(std::unique_ptr<maypole::comm::Communicator> communicator) : communicator_(std::move(communicator)) {}

  [[nodiscard]] int rank() const override { return communicator_->rank(); }
  [[nodiscard]] int num_ranks() const override { return communicator_->num_ranks(); }
  float* allocate(std::size_t count) override {
    auto memory = communicator_->allocate(count * sizeof(float));
    check(memory.status());
    memory_.push_back(*std::move(memory));
    return reinterpret_cast<float*>(memory_.back()->bytes().data());
  }
  void barrier() override { check(communicator_->barrier().wait()); }
  void all_reduce(float* data, std::size_t count) override {
    check(communicator_->all_reduce(bytes_of(data), count, DType::kFloat32, ReduceOp::kSum).wait());
  }
  void reduce_scatter(const float* input, std::size_t count, float* output) override {
    check(communicator_->reduce_scatter(reinterpret_cast<const std::byte*>(input), count, bytes_of(output), DType::kFloat32, ReduceOp::kSum)
              .wait());
  }
  void all_gather(float* data, std::size_t count) override {
    check(communicator_->all_gather(bytes_of(data), count, DType::kFloat32).wait());
  }
  std::vector<double> collect(double value) override {
    std::vector<double> values(static_cast<std::size_t>(num_ranks()));
    values[static_cast<std::size_t>(rank())] = value;
    check(communicator_->all_gather(reinterpret_cast<std::byte*>(values.data()), values.size(), DType::kFloat64).wait());
    return values;
  }
  void finish() { check(communicator_->finalize(std::chrono::seconds(30))); }

 private:
  std::unique_ptr<maypole::comm::Communicator> communicator_;
  std::vector<std::shared_ptr<maypole::comm::SharedMemory>> memory_;
};

}  // namespace

int main(int argc, char** argv) {
  auto environment = maypole::comm::read_environment();
  check(environment.status());
  maypole::comm::ProgressOptions progress;
  progress.silence = environment->heartbeat;
  progress.timeout = environment->timeout;
  auto communicator = maypole::comm::create_ring_communicator(environment->connect, progress);
  check(communicator.status());
  if ((*communicator)->rank() == 0) {
    fmt::print(stderr, "{}\n", (*communicator)->describe());
  }
  MaypoleRing ring(*std::move(communicator));
  maypole::benchmarks::run_cases(ring, argc, argv);
  ring.finish();
  return 0;
}
