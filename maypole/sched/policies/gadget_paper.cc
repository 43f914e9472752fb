// SPDX-License-Identifier: Apache-2.0
#include "maypole/sched/policies/gadget_paper.h"

#include "maypole/sched/assemble.h"
#include "maypole/sched/free_capacity.h"
#include "maypole/sched/policies/gadget_paper_augmented_lp.h"
#include "maypole/sched/policies/gadget_paper_decomposition.h"
#include "maypole/sched/policies/gadget_paper_ring_selection.h"
#include "maypole/sched/ring_placement.h"

#include <fmt/ranges.h>

#include <set>

namespace maypole::sched {

namespace {

bool keeps_to_its_racks(const PaperSlot& slot, std::size_t job, const model::Embedding& embedding) {
  const int limit = rack_limit(*slot.jobs[job].active, slot.cluster());
  std::set<model::RackId> racks;
  for (const model::ServerId server : embedding.ring) {
    racks.insert(slot.cluster().server(server).rack);
  }
  return limit == 0 || static_cast<int>(racks.size()) <= limit;
}

// Drops what does not fit behind the jobs that arrived before; returns how many.
int drop_what_does_not_fit(const PaperSlot& slot, std::vector<std::optional<model::Embedding>>& embeddings) {
  FreeCapacity free(slot.cluster());
  int dropped = 0;
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    if (!embeddings[i]) {
      continue;
    }
    const model::Job& job = *slot.jobs[i].active->job;
    if (free.fits(job, *embeddings[i]) && keeps_to_its_racks(slot, i, *embeddings[i])) {
      free.take(job, *embeddings[i]);
    } else {
      embeddings[i].reset();
      ++dropped;
    }
  }
  return dropped;
}

}  // namespace

Decision GadgetPaper::decide(const SlotProblem& problem, base::Rng& rng) {
  Work work;
  const PaperSlot slot = make_paper_slot(problem);
  const PaperRelaxation relaxation = relax_paper_slot(slot, options_.max_pivots, work);
  const std::vector<int> sizes = select_rings(slot, relaxation);
  PaperAugmented augmented = solve_augmented_lp(slot, sizes, options_.max_pivots, work);
  const WeightedMappings mappings = weighted_mappings(std::move(augmented.mappings));
  const PaperFactors theorem = theorem_factors(slot, sizes);
  PaperRounding rounding = round_randomly(slot, sizes, mappings, augmented.value, theorem, options_.paper_roundings, rng);
  work.roundings = rounding.roundings;

  report_ = {.relaxation = relaxation.value,
             .augmented = augmented.value,
             .sizes = sizes,
             .theorem = theorem,
             .reached = rounding.drawing.reached,
             .satisfied = rounding.satisfied,
             .roundings = rounding.roundings,
             .overloaded = rounding.drawing.overloaded,
             .dropped = 0};
  if (!options_.paper_as_published) {
    report_.dropped = drop_what_does_not_fit(slot, rounding.drawing.embeddings);
  }
  Decision decision = assemble(problem, std::move(rounding.drawing.embeddings));
  decision.work = work;
  decision.limited = !relaxation.solved || !augmented.solved;
  if (!options_.paper_as_published || report_.overloaded == 0) {  // the relaxation bounds what keeps the capacities only
    decision.bound_lp = relaxation.value;
  }
  decision.note = fmt::format(
      "LP (12) {:.6g}, augmented LP {:.6g}; alpha {:.3f} (theorem {:.3f}), beta {:.2f} ({:.2f}), gamma {:.2f} ({:.2f}) after {} "
      "roundings{}; "
      "{} servers and links overloaded, {} rings dropped",
      report_.relaxation, report_.augmented, report_.reached.alpha, theorem.alpha, fmt::join(report_.reached.beta, "/"),
      fmt::join(theorem.beta, "/"), report_.reached.gamma, theorem.gamma, report_.roundings, report_.satisfied ? "" : " (not all kept)",
      report_.overloaded, report_.dropped);
  return decision;
}

std::unique_ptr<Policy> make_gadget_paper(const PolicyOptions& options) { return std::make_unique<GadgetPaper>(options); }

}  // namespace maypole::sched
