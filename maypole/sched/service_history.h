// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the jobs that have ended say about those that have not: how much service, in accelerator-seconds, they had received by then. It is
// all that a policy may know of lengths that are hidden from it.
//
// Kept as a hazard by bins that double: of the jobs that came to a bin, how many ended in it, and how long those stayed that were there.
// From both follows how likely a job of some service is to end within the next second of service, also where many have not ended yet.

#include <array>
#include <cstddef>

namespace maypole::sched {

class ServiceHistory {
 public:
  static constexpr std::size_t kBins = 48;  // [0, 1), [1, 2), [2, 4) ... seconds; the last one has no end
  struct Bin {
    double ended = 0;   // jobs
    double passed = 0;  // accelerator-seconds that jobs had spent in it
    bool operator==(const Bin&) const = default;
  };

  [[nodiscard]] static std::size_t bin_of(double service_s);
  [[nodiscard]] static double begin_of(std::size_t bin);
  [[nodiscard]] static double width_of(std::size_t bin) { return begin_of(bin + 1) - begin_of(bin); }

  /// A job that has had so much; `ended`: and was done with it. Else it is one that still runs, or was cancelled: it needs more than that.
  void add(double service_s, bool ended);

  [[nodiscard]] const std::array<Bin, kBins>& bins() const { return bins_; }
  [[nodiscard]] std::array<Bin, kBins>& bins() { return bins_; }

 private:
  std::array<Bin, kBins> bins_ = {};
};

}  // namespace maypole::sched
