# SPDX-License-Identifier: Apache-2.0
"""The part `tuning` of bench-plan: groups tuned while training, against a grid of sizes, between two hosts on shaped links.

Twelve sizes, the default, `auto` from bad starts (1 MB, 256 MB) and `plan` take turns in one job, in blocks of a few iterations. The best
of the grid is chosen by the first block and compared by the others, so that luck does not count for it.
"""

from __future__ import annotations

import statistics
import sys

from benchmarks.common import ROOT, Rows, maypole_program, progress, run_checked, tagged_results, worker_environment
from benchmarks.fabric import Fabric

Cell = tuple[str, str, int]
CELLS: list[Cell] = [("2gbit", "cnn", 32), ("1gbit", "cnn", 32), ("500mbit", "cnn", 32)]
GRID = [round((256 << 10) * 80 ** (k / 11)) for k in range(12)]  # one block to the whole network
DEFAULT = "1MiB"  # with its small first group: where auto begins by default
TUNED = ["auto:1MB", "auto:256MB", "plan:1MB"]
GOAL = 1.05


def tune_cell(rows: Rows, cell: Cell, schedule: str = "weave") -> None:
    link, model, batch = cell
    progress(f"{link} {model} {batch}: a grid of {len(GRID)} sizes, and groups tuned while training ...")
    sizes = [*map(str, GRID), DEFAULT, *TUNED]
    worker = [sys.executable, "-m", "benchmarks.tuning_worker", "--sizes", ",".join(sizes), "--keep", DEFAULT, "--model", model,
              "--batch", str(batch), "--schedule", schedule]
    with Fabric(2, link) as fabric:
        run = [maypole_program(), "run", "--hosts", fabric.hosts_option, "--launcher", fabric.launcher, "--", *worker]
        environment = worker_environment(PYTHONPATH=f"{ROOT}:{ROOT / 'python'}")
        results = {result["size"]: result for result in tagged_results(run_checked(run, "maypole run", 900, env=environment, cwd=ROOT))}
    best = next(size for size, result in results.items() if result["best"])

    def again(size: str) -> float:
        return statistics.median([value for block in results[size]["blocks"][1:] for value in block])

    rows.add(
        kind="tuning", model=model, batch=batch, link=link, workers=2, schedule=schedule,
        grid={size: statistics.median(results[str(size)]["blocks"][0]) for size in GRID},
        best_size=best, best_s=again(best), default_s=again(DEFAULT), tuned_s={name: again(name) for name in TUNED},
        told={name: results[name]["fusion"] for name in TUNED},
    )


def show(row: dict) -> None:
    def against_best(seconds: float) -> str:
        verdict = "" if seconds <= GOAL * row["best_s"] else "  MISSED (goal: 5 %)"
        return f"{1e3 * seconds:.1f} ms, {100 * (seconds / row['best_s'] - 1):+.1f} %{verdict}"

    cell = f"{row['link']} {row['model']} {row['batch']} {row['schedule']}"
    print(f"{cell}: best of the grid {row['best_size']} bytes {1e3 * row['best_s']:.1f} ms; default {against_best(row['default_s'])}")
    for name, seconds in row["tuned_s"].items():
        print(f"  {name} {against_best(seconds)}: {row['told'][name]}")
