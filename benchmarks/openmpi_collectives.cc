// SPDX-License-Identifier: Apache-2.0
//
// The collectives of Open MPI, measured as collective_cases.h says; in place where MPI has it without destroying the input.

#define OMPI_SKIP_MPICXX 1
#include "benchmarks/collective_cases.h"

#include <mpi.h>

namespace {

class OpenMpi final : public maypole::benchmarks::CollectivePeer {
 public:
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int num_ranks() const override { return size_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(float* data, std::size_t count) override {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void reduce_scatter(const float* input, std::size_t count, float* output) override {
    MPI_Reduce_scatter_block(input, output, static_cast<int>(count) / size_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void all_gather(float* data, std::size_t count) override {
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, static_cast<int>(count) / size_, MPI_FLOAT, MPI_COMM_WORLD);
  }
  std::vector<double> collect(double value) override {
    std::vector<double> values(static_cast<std::size_t>(size_));
    MPI_Allgather(&value, 1, MPI_DOUBLE, values.data(), 1, MPI_DOUBLE, MPI_COMM_WORLD);
    return values;
  }
  OpenMpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

 private:
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);  // errors abort: MPI_ERRORS_ARE_FATAL is the default
  OpenMpi peer;
  maypole::benchmarks::run_cases(peer, argc, argv);
  MPI_Finalize();
  return 0;
}
