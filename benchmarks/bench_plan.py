# SPDX-License-Identifier: Apache-2.0
"""The simulator and the searches behind `maypole plan`: `make bench-plan` writes bench/plan.json and prints a table.

kind simulator: iterations a second for ResNet-50 at 64 workers. kind planner: seconds for a plan of some 400 tensors. kind gap: the cuts
against brute force over at most 12 blocks. kind search: samples that Bayesian, random and grid search need over 20 seeds in the simulator
(`maypole paper dear`). kind tuning: benchmarks/tuning.py. kind prediction: iterations between two hosts on shaped links, measured and as
the simulator says from a profile of the same script on the same link; its contention is fitted once, to cells that are not predicted
(kind calibration).
`--measured FOLDER` keeps what was measured, so that the prediction part can be run in slices and repeated without measuring.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import tuning
from benchmarks.bench_training import CELLS, worker
from benchmarks.common import ROOT, Rows, maypole_program, progress, run_checked, tagged_results, worker_environment
from benchmarks.fabric import Fabric

Cell = tuple[str, str, int]  # link, model, batch
# Other links and batches than those that are predicted, on which computing counts: where the link is the limit, contention hides.
CALIBRATION = [("700mbit", "gpt", 12), ("400mbit", "cnn", 96)]
SCHEDULES = ["wfbp", "dear", "weave"]
MOST_CONTENTION = 10.0  # seconds per GB
CLOSE = 0.1
TIED = 0.02


def launch(fabric: Fabric, what: list[str], command: list[str]) -> None:
    program = [maypole_program(), *what, "--hosts", fabric.hosts_option, "--launcher", fabric.launcher, "--", *command]
    environment = worker_environment(PYTHONPATH=f"{ROOT}:{ROOT / 'python'}")
    run_checked(program, f"maypole {what[0]}", 600, env=environment)


@dataclass(frozen=True)
class Measured:
    cell: Cell
    profile: Path
    reports: dict[str, Path]  # by schedule


def measure(cell: Cell, folder: Path, iterations: int) -> Measured:
    """A profile of the cell, and a report for each schedule; what the folder holds already is not measured again."""
    link, model, batch = cell
    name = "-".join(map(str, cell))
    measured = Measured(cell, folder / f"{name}.json", {schedule: folder / f"{name}-{schedule}.json" for schedule in SCHEDULES})
    if all(path.exists() for path in [measured.profile, *measured.reports.values()]):
        return measured
    with Fabric(2, link) as fabric, tempfile.TemporaryDirectory() as weights:
        progress(f"{link} {model} {batch}: profile ...")
        command = worker(model, batch, ["maypole-sync"], 1000, weights)
        launch(fabric, ["profile", "-o", str(measured.profile), "--iterations", str(iterations)], command)
        for schedule, report in measured.reports.items():
            progress(f"{link} {model} {batch}: {schedule} ...")
            launch(fabric, ["run", "--report", str(report)], worker(model, batch, [f"maypole-{schedule}"], iterations, weights))
    return measured


def plan(*arguments: str) -> dict:
    done = subprocess.run([maypole_program(), "plan", *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def check(cell: Measured, *options: str) -> list[dict]:
    """What the simulator says of the cell's runs, beside what they took."""
    reports = [word for report in cell.reports.values() for word in ("--check", str(report))]
    return plan("--profile", str(cell.profile), *options, *reports)["checks"]


def fit(cells: list[Measured]) -> float:
    """The contention, in seconds per GB, with the least sum of squared logarithms of predicted over measured in all the cells."""

    def misfit(contention: float) -> float:
        found = [answer for cell in cells for answer in check(cell, "--contention", str(contention))]
        return sum(math.log(answer["predicted_s"] / answer["measured_s"]) ** 2 for answer in found)

    return min((step * MOST_CONTENTION / 40 for step in range(41)), key=misfit)


def predict_cells(rows: Rows, cells: list[Cell], calibration: list[Cell], iterations: int, given: float, folder: Path) -> None:
    def where(cell: Measured) -> dict:
        link, model, batch = cell.cell
        return {"model": model, "batch": batch, "link": link, "workers": 2}

    fitted = [measure(cell, folder, iterations) for cell in calibration]
    contention = fit(fitted) if fitted else given
    for cell in fitted:
        for found in check(cell, "--contention", str(contention)):
            rows.add(**{**where(cell), **found, "kind": "calibration", "contention_s_per_gb": contention})
    for cell in (measure(cell, folder, iterations) for cell in cells):
        ring = json.loads(cell.profile.read_text())["ring"]
        for found in check(cell, "--contention", str(contention)):
            rows.add(**{**where(cell), **found, "kind": "prediction", "contention_s_per_gb": contention, "ring": ring})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="simulator,search,prediction,tuning", help="which of these to run")
    parser.add_argument("--cells", help="link:model:batch,... to predict; default: those of bench-training")
    parser.add_argument("--calibration", help="the same, to fit the contention to")
    parser.add_argument("--contention", type=float, default=0.0, help="seconds per GB, where no cell is given for calibration")
    parser.add_argument("--measured", type=Path, help="folder of profiles and reports: takes what is there, keeps what is measured")
    parser.add_argument("--iterations", type=int, default=20, help="measured in each run")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")

    def cells(text: str | None, default: list[Cell]) -> list[Cell]:
        return (
            default if text is None else [(link, model, int(batch)) for link, model, batch in (c.split(":") for c in text.split(",") if c)]
        )

    rows = Rows("plan", "plan")
    if "simulator" in parts:
        program = Path(maypole_program()).parent / "benchmarks" / "bench_planning"
        for result in tagged_results(run_checked([str(program)], "bench_planning", 600)):
            rows.add(**result)
    if "search" in parts:
        progress("searching for fusion sizes, 20 seeds ...")
        answer = json.loads(run_checked([maypole_program(), "paper", "dear", "--json"], "maypole paper dear", 600))
        for row in answer["search"]:
            rows.add(**{"kind": "search", **row})
    if "prediction" in parts:
        chosen, calibration = cells(arguments.cells, CELLS), cells(arguments.calibration, CALIBRATION)
        with contextlib.ExitStack() as stack:
            folder = arguments.measured or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.mkdir(parents=True, exist_ok=True)
            predict_cells(rows, chosen, calibration, arguments.iterations, arguments.contention, folder)
    if "tuning" in parts:
        for cell in tuning.CELLS:
            tuning.tune_cell(rows, cell)
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
        elif row["kind"] == "tuning":
            tuning.show(row)
        elif row["kind"] in ("calibration", "prediction"):
            print(
                f"{row['link']} {row['model']} {row['batch']} {row['schedule']}: predicted {1e3 * row['predicted_s']:.1f} ms, "
                f"measured {1e3 * row['measured_s']:.1f} ms ({row['predicted_s'] / row['measured_s']:.3f})"
                f"{', fitted to' if row['kind'] == 'calibration' else ''}"
            )
    report_predictions([row for row in rows if row["kind"] == "prediction"])
    for sizes in (1, 3):
        found = [row for row in rows if row["kind"] == "search" and row["sizes"] == sizes]
        for search in ("bayes", "random", "grid") if found else ():
            print(
                f"{sizes} size(s), {search}: median samples by cell {[row['median_samples'] for row in found if row['search'] == search]}"
            )


def report_predictions(rows: list[dict]) -> None:
    """How many are close, and in how many cells the schedules come in the order in which they were measured."""
    if not rows:
        return
    close = sum(abs(row["predicted_s"] / row["measured_s"] - 1) <= CLOSE for row in rows)
    cells: dict[Cell, list[dict]] = {}
    for row in rows:
        cells.setdefault((row["link"], row["model"], row["batch"]), []).append(row)
    ranked = sum(all(in_order(one, other) for one in cell for other in cell) for cell in cells.values())
    print(f"contention {rows[0]['contention_s_per_gb']} s/GB; predictions within 10 %: {close} of {len(rows)} (goal: 90 %)")
    print(f"cells whose schedules are ranked as measured (those that took the same to {100 * TIED:.0f} % may come in any order): "
          f"{ranked} of {len(cells)}")


def in_order(one: dict, other: dict) -> bool:
    """Whether the run that was faster, by more than noise, is not the one that was predicted to be slower."""
    faster = one["measured_s"] < other["measured_s"] * (1 - TIED)
    return not (faster and one["predicted_s"] > other["predicted_s"])


if __name__ == "__main__":
    main()
