# SPDX-License-Identifier: Apache-2.0
"""The simulator and the searches behind `maypole plan`: `make bench-plan` writes bench/plan.json and prints a table.

kind simulator: iterations a second for ResNet-50 at 64 workers. kind planner: seconds for a plan of some 400 tensors. kind gap: the cuts
against brute force over at most 12 blocks. kind search: samples that Bayesian, random and grid search need over 20 seeds in the simulator
(`maypole paper dear`). kind prediction: iterations between two hosts on shaped links, measured and as the simulator says from a profile of
the same script on the same link; its contention is fitted once, to cells that are not predicted (kind calibration).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from benchmarks.bench_training import CELLS, worker
from benchmarks.common import ROOT, Rows, maypole_program, progress, run_checked, tagged_results, worker_environment
from benchmarks.fabric import Fabric

CALIBRATION = [("300mbit", "gpt", 8), ("300mbit", "cnn", 32)]
SCHEDULES = ["wfbp", "dear", "weave"]


def launch(fabric: Fabric, what: list[str], command: list[str]) -> None:
    program = [maypole_program(), *what, "--hosts", fabric.hosts_option, "--launcher", fabric.launcher, "--", *command]
    environment = worker_environment(PYTHONPATH=f"{ROOT}:{ROOT / 'python'}")
    run_checked(program, f"maypole {what[0]}", 600, env=environment)


def measure(link: str, model: str, batch: int, folder: Path, iterations: int) -> tuple[Path, dict[str, Path]]:
    """A profile of the cell, and a report for each schedule."""
    profile = folder / f"{link}-{model}-{batch}.json"
    reports = {schedule: folder / f"{link}-{model}-{batch}-{schedule}.json" for schedule in SCHEDULES}
    with Fabric(2, link) as fabric, tempfile.TemporaryDirectory() as weights:
        progress(f"{link} {model} {batch}: profile ...")
        launch(
            fabric, ["profile", "-o", str(profile), "--iterations", str(iterations)], worker(model, batch, ["maypole-sync"], 1000, weights)
        )
        for schedule, report in reports.items():
            progress(f"{link} {model} {batch}: {schedule} ...")
            launch(fabric, ["run", "--report", str(report)], worker(model, batch, [f"maypole-{schedule}"], iterations, weights))
    return profile, reports


def plan(*arguments: str) -> dict:
    done = subprocess.run([maypole_program(), "plan", *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def network(link: str) -> list[str]:
    """The link by its name: the ring's own measurement is too short for a shaped link, whose burst passes it at once."""
    return ["--network", link.split("-")[0]]


def predict_cells(
    rows: Rows, cells: list[tuple[str, str, int]], calibration: list[tuple[str, str, int]], iterations: int, given: float
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        factors = []
        for link, model, batch in calibration:
            profile, reports = measure(link, model, batch, folder, iterations)
            fit = [word for report in reports.values() for word in ("--fit", str(report))]
            answer = plan(
                "--profile", str(profile), *network(link), *fit, *[word for report in reports.values() for word in ("--check", str(report))]
            )
            factors.append(answer["contention"])
            rows.add(
                kind="calibration", model=model, batch=batch, link=link, workers=2, contention=answer["contention"], checks=answer["checks"]
            )
        contention = sum(factors) / len(factors) if factors else given
        for link, model, batch in cells:
            profile, reports = measure(link, model, batch, folder, iterations)
            check = [word for report in reports.values() for word in ("--check", str(report))]
            ring = json.loads(profile.read_text())["ring"]
            for found in plan("--profile", str(profile), *network(link), "--contention", str(contention), *check)["checks"]:
                rows.add(
                    kind="prediction",
                    model=model,
                    batch=batch,
                    link=link,
                    workers=2,
                    schedule=found["schedule"],
                    predicted_s=found["predicted_s"],
                    measured_s=found["measured_s"],
                    contention=contention,
                    ring=ring,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="simulator,search,prediction", help="which of these to run")
    parser.add_argument("--cells", help="link:model:batch,... to predict; default: those of bench-training")
    parser.add_argument("--calibration", help="the same, to fit the contention to")
    parser.add_argument("--contention", type=float, default=0.0, help="used where no cell is given for calibration")
    parser.add_argument("--iterations", type=int, default=20, help="measured in each run")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")

    def cells(text: str | None, default: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
        return (
            default if text is None else [(link, model, int(batch)) for link, model, batch in (c.split(":") for c in text.split(",") if c)]
        )

    rows = Rows("plan", "plan")
    if "simulator" in parts:
        program = ROOT / "build" / "benchmarks" / "bench_planning"
        for result in tagged_results(run_checked([str(program)], "bench_planning", 600)):
            rows.add(**result)
    if "search" in parts:
        progress("searching for fusion sizes, 20 seeds ...")
        answer = json.loads(run_checked([maypole_program(), "paper", "dear", "--json"], "maypole paper dear", 600))
        for row in answer["search"]:
            rows.add(**{"kind": "search", **row})
    if "prediction" in parts:
        predict_cells(
            rows, cells(arguments.cells, CELLS), cells(arguments.calibration, CALIBRATION), arguments.iterations, arguments.contention
        )
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
        elif row["kind"] == "calibration":
            print(f"{row['link']} {row['model']} {row['batch']}: contention {row['contention']:.3f}, {row['checks']}")
        elif row["kind"] == "prediction":
            print(
                f"{row['link']} {row['model']} {row['batch']} {row['schedule']}: predicted {1e3 * row['predicted_s']:.1f} ms, "
                f"measured {1e3 * row['measured_s']:.1f} ms ({row['predicted_s'] / row['measured_s']:.3f})"
            )
    predictions = [row for row in rows if row["kind"] == "prediction"]
    if predictions:
        close = sum(abs(row["predicted_s"] / row["measured_s"] - 1) <= 0.1 for row in predictions)
        print(f"predictions within 10 %: {close} of {len(predictions)} (goal: 90 %)")
    for sizes in (1, 3):
        found = [row for row in rows if row["kind"] == "search" and row["sizes"] == sizes]
        for search in ("bayes", "random", "grid") if found else ():
            print(
                f"{sizes} size(s), {search}: median samples by cell {[row['median_samples'] for row in found if row['search'] == search]}"
            )


if __name__ == "__main__":
    main()
