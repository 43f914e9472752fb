// SPDX-License-Identifier: Apache-2.0
#pragma once

// Policy `gadget-paper`: Algorithm 1 with Algorithm 2 (LP-RS-MDE) of GADGET (Yu et al., INFOCOM 2022) to the letter.
//
//   for every slot t                                                         Algorithm 1: whoever calls decide()
//     I[t], Q_i[t], pi_{i,k}                                                 gadget_paper_slot.h
//     LP relaxation of (12)                                                  gadget_paper_relaxation.h
//     ring selection: kappa_i                                                gadget_paper_ring_selection.h
//     augmented LP for the chosen rings                                      gadget_paper_augmented_lp.h
//     decomposition into weighted mappings M_i                               gadget_paper_decomposition.h
//     randomised rounding until (alpha, beta, gamma) holds or u_b is reached  gadget_paper_rounding.h
//
// What the paper leaves open is decided in docs/scheduler.md. It has two results: as published, where drawn rings may overload servers and
// links (the overloads are counted in the decision's note); and with those rings dropped, in order of arrival, that do not fit or break
// the job's limit of racks.

#include "maypole/sched/policies/gadget_paper_rounding.h"
#include "maypole/sched/policy.h"

namespace maypole::sched {

/// What the last decision measured.
struct PaperReport {
  double relaxation = 0;   // optimum of the LP relaxation of (12)
  double augmented = 0;    // optimum of the augmented LP
  std::vector<int> sizes;  // kappa_i, [job]; 0: none
  PaperFactors theorem;
  PaperFactors reached;  // by the drawing, before anything is dropped
  bool satisfied = false;
  int roundings = 0;
  int overloaded = 0;  // servers and links that the drawing overloads
  int dropped = 0;     // drawn rings that did not fit (0 as published)
};

class GadgetPaper : public Policy {
 public:
  explicit GadgetPaper(const PolicyOptions& options) : options_(options) {}
  [[nodiscard]] std::string name() const override { return "gadget-paper"; }
  [[nodiscard]] Decision decide(const SlotProblem& problem, base::Rng& rng) override;
  [[nodiscard]] const PaperReport& report() const { return report_; }

 private:
  PolicyOptions options_;
  PaperReport report_;
};

[[nodiscard]] std::unique_ptr<Policy> make_gadget_paper(const PolicyOptions& options);

}  // namespace maypole::sched
