# SPDX-License-Identifier: Apache-2.0
"""The simulator and the searches behind `maypole plan`: `make bench-plan` writes bench/plan.json and prints a table.

kind simulator: iterations a second for ResNet-50 at 64 workers. kind planner: seconds for a plan of some 400 tensors. kind gap: the cuts
against brute force over at most 12 blocks. kind search: samples that Bayesian, random and grid search need over 20 seeds in the simulator
(`maypole paper dear`). Rows of kind prediction, measured against predicted iterations, come from runs on shaped links.
"""

from __future__ import annotations

import json
import subprocess

from benchmarks.common import ROOT, Rows, maypole_program, progress, run_checked, tagged_results


def main() -> None:
    rows = Rows("plan", "plan")
    program = ROOT / "build" / "benchmarks" / "bench_planning"
    for result in tagged_results(run_checked([str(program)], "bench_planning", 600)):
        rows.add(**result)
    progress("searching for fusion sizes, 20 seeds ...")
    answer = json.loads(subprocess.run([maypole_program(), "paper", "dear", "--json"], capture_output=True, text=True, check=True).stdout)
    for row in answer["search"]:
        rows.add(**{"kind": "search", **row})
    report(rows.rows)


def report(rows: list[dict]) -> None:
    for row in rows:
        if row["kind"] == "simulator":
            print(f"{row['model']} {row['workers']} workers {row['schedule']}: {row['iterations_per_s']:.0f} iterations/s (goal: 2000)")
        elif row["kind"] == "planner":
            print(f"{row['model']} {row['tensors']} tensors {row['network']} {row['schedule']}: {1e3 * row['plan_s']:.1f} ms (goal: 50)")
        elif row["kind"] == "gap":
            print(
                f"{row['schedule']} against brute force: median {100 * row['median_gap']:.4f} %, largest {100 * row['largest_gap']:.2f} %"
            )
    for sizes in (1, 3):
        cells = [row for row in rows if row["kind"] == "search" and row["sizes"] == sizes]
        for search in ("bayes", "random", "grid"):
            medians = [row["median_samples"] for row in cells if row["search"] == search]
            print(f"{sizes} size(s), {search}: median samples by cell {medians}")


if __name__ == "__main__":
    main()
