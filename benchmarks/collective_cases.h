// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timed and checked collectives, the same for every peer: the peers differ only in `CollectivePeer`.
//
// The command line is a list of cases OP:BYTES:REPETITIONS:INNER. A repetition fills the buffers, meets at a barrier, runs the
// operation INNER times back to back (more than once for small buffers, so that the barrier's skew does not count; a single operation
// starts at a time that all ranks agree on, by the clock that the namespaces of one machine share), and checks every element. Its time is
// the slowest rank's, divided by INNER. The first repetition is warm-up. Rank 0 prints `RESULT {json}` a case.
//
// The values are small integers, so float32 sums are exact: element i of rank r holds i mod 1021 + r + 1. A repeated in-place
// all-reduce multiplies the first sum by P each time, which is exact for P a power of two.

#include <sys/mman.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace maypole::benchmarks {

/// What is measured. All buffers are float32; calls return when this rank's part is done and abort the program on failure.
class CollectivePeer {
 public:
  virtual ~CollectivePeer() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int num_ranks() const = 0;
  /// Memory that the peer likes best; huge pages where it has no opinion.
  virtual float* allocate(std::size_t count) {
    const std::size_t bytes = (count * sizeof(float) + (std::size_t{2} << 20) - 1) & ~((std::size_t{2} << 20) - 1);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      std::fprintf(stderr, "no memory for %zu bytes\n", bytes);
      std::exit(1);
    }
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<float*>(memory);
  }
  virtual void barrier() = 0;
  virtual void all_reduce(float* data, std::size_t count) = 0;
  /// count is divisible by num_ranks(); `output` holds count / num_ranks().
  virtual void reduce_scatter(const float* input, std::size_t count, float* output) = 0;
  virtual void all_gather(float* data, std::size_t count) = 0;
  /// [rank]: every rank's number.
  virtual std::vector<double> collect(double value) = 0;
};

struct CollectiveCase {
  std::string op;
  std::size_t bytes = 0;
  int repetitions = 0;
  int inner = 1;
};

inline CollectiveCase parse_case(const std::string& text) {
  CollectiveCase parsed;
  char op[32] = {};
  if (std::sscanf(text.c_str(), "%31[a-z_]:%zu:%d:%d", op, &parsed.bytes, &parsed.repetitions, &parsed.inner) != 4) {
    std::fprintf(stderr, "%s is not OP:BYTES:REPETITIONS:INNER\n", text.c_str());
    std::exit(2);
  }
  parsed.op = op;
  return parsed;
}

/// Calls visit(i, i mod 1021) for i in [begin, end).
template <typename Visit>
void for_each_value(std::size_t begin, std::size_t end, const Visit& visit) {
  std::size_t value = begin % 1021;
  for (std::size_t i = begin; i < end; ++i) {
    visit(i, static_cast<float>(value));
    value = value == 1020 ? 0 : value + 1;
  }
}

/// Counts wrong elements of `data`, which holds elements [begin, end) of the sum over ranks times `factor`.
inline std::size_t wrong_sums(const float* data, std::size_t begin, std::size_t end, int num_ranks, float factor) {
  const auto p = static_cast<float>(num_ranks);
  const float ranks = p * (p + 1) / 2;
  std::size_t wrong = 0;
  for_each_value(begin, end, [&](std::size_t i, float v) { wrong += data[i - begin] != (p * v + ranks) * factor; });
  return wrong;
}

/// Returns at the same time on all ranks: a barrier alone lets the first rank go up to the link's delay before the last.
inline void start_together(CollectivePeer& peer) {
  constexpr double kMeeting = 0.02;  // more than collect() takes over any of the links
  constexpr double kSpin = 1e-4;     // a sleeper is late by less; short, because there may be more ranks than cores
  const auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  double start = 0;
  for (const double time : peer.collect(now() + kMeeting)) {
    start = time > start ? time : start;
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(start - now() - kSpin));
  while (now() < start) {
  }
}

inline double run_repetition(CollectivePeer& peer, const CollectiveCase& c, float* data, float* shard) {
  const std::size_t count = c.bytes / sizeof(float);
  const auto p = static_cast<std::size_t>(peer.num_ranks());
  const auto rank = static_cast<std::size_t>(peer.rank());
  const std::size_t begin = count / p * rank;
  const std::size_t end = count / p * (rank + 1);
  const auto own = static_cast<float>(rank + 1);
  if (c.op == "all_gather") {
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = -1;
    }
    for_each_value(begin, end, [&](std::size_t i, float v) { data[i] = v + own; });
  } else {
    for_each_value(0, count, [&](std::size_t i, float v) { data[i] = v + own; });
  }
  peer.barrier();
  if (c.inner == 1) {
    start_together(peer);
  }
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < c.inner; ++i) {
    if (c.op == "all_reduce") {
      peer.all_reduce(data, count);
    } else if (c.op == "reduce_scatter") {
      peer.reduce_scatter(data, count, shard);
    } else if (c.op == "all_gather") {
      peer.all_gather(data, count);
    } else {
      std::fprintf(stderr, "unknown operation %s\n", c.op.c_str());
      std::exit(2);
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / c.inner;
  std::size_t wrong = 0;
  if (c.op == "all_reduce") {
    wrong = wrong_sums(data, 0, count, peer.num_ranks(), std::pow(static_cast<float>(p), static_cast<float>(c.inner - 1)));
  } else if (c.op == "reduce_scatter") {
    wrong = wrong_sums(shard, begin, end, peer.num_ranks(), 1);
  } else {
    for (std::size_t r = 0; r < p; ++r) {
      const auto theirs = static_cast<float>(r + 1);
      for_each_value(count / p * r, count / p * (r + 1), [&](std::size_t i, float v) { wrong += data[i] != v + theirs; });
    }
  }
  if (wrong != 0) {
    std::fprintf(stderr, "rank %d: %zu of %zu elements are wrong after %s of %zu bytes\n", peer.rank(), wrong, count, c.op.c_str(),
                 c.bytes);
    std::abort();
  }
  double slowest = 0;
  for (const double time : peer.collect(seconds)) {
    slowest = time > slowest ? time : slowest;
  }
  return slowest;
}

inline void run_cases(CollectivePeer& peer, int argc, char** argv) {
  std::vector<CollectiveCase> cases;
  std::size_t largest = 0;
  for (int i = 1; i < argc; ++i) {
    cases.push_back(parse_case(argv[i]));
    largest = cases.back().bytes > largest ? cases.back().bytes : largest;
  }
  float* data = peer.allocate(largest / sizeof(float));
  float* shard = peer.allocate(largest / sizeof(float) / static_cast<std::size_t>(peer.num_ranks()) + 1);
  for (const CollectiveCase& c : cases) {
    std::string times;
    run_repetition(peer, c, data, shard);
    for (int i = 0; i < c.repetitions; ++i) {
      times += (i ? ", " : "") + std::to_string(run_repetition(peer, c, data, shard) * 1e6);
    }
    if (peer.rank() == 0) {
      std::printf("RESULT {\"op\": \"%s\", \"bytes\": %zu, \"times_us\": [%s]}\n", c.op.c_str(), c.bytes, times.c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace maypole::benchmarks
