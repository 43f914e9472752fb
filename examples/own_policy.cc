// SPDX-License-Identifier: Apache-2.0
// A scheduling policy of one's own in one file: `narrow` serves the jobs that want the fewest workers first. The program that comes out is
// `maypole` with all its commands, and one policy more (docs/guide-research.md).

#include "maypole/cli/program.h"
#include "maypole/sched/policies/rigid.h"
#include "maypole/sched/policy.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace {

using namespace maypole;

class Narrow : public sched::Policy {
 public:
  [[nodiscard]] std::string name() const override { return "narrow"; }

  [[nodiscard]] sched::Decision decide(const sched::SlotProblem& problem, base::Rng& /*rng*/) override {
    std::vector<std::size_t> order(problem.jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    // Of equally narrow jobs the running one, then the first to arrive.
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::tuple(problem.jobs[i].job->workers, !problem.jobs[i].running(), i); });
    return sched::decide_rigid(problem, order, sched::RingStyle::kTopology);  // who stands first chooses first; rings in the fewest racks
  }
};

std::unique_ptr<sched::Policy> make_narrow(const sched::PolicyOptions& /*options*/) { return std::make_unique<Narrow>(); }

}  // namespace

int main(int argc, char** argv) {
  sched::add_policy("narrow", make_narrow);
  return cli::run_program(argc, argv);
}
