# SPDX-License-Identifier: Apache-2.0
"""The demonstration (`make demo`): one network, two workers, a slow network, four schedules.

Trains examples/digits.py on two workers of this machine whose edges are paced, so that communicating takes about as long as computing:
the case in which the schedule matters most. Ends with a table and a picture of both workers' timelines.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from timeline_picture import draw, make_panel

ROOT = Path(__file__).resolve().parent.parent
SCHEDULES = {
    "sync": "all-reduce after backward",
    "wfbp": "all-reduce during backward, as DDP does",
    "dear": "reduce-scatter during backward, all-gather during the next forward",
    "weave": "as dear, without the barrier between the two",
}
PAYLOAD_SHARE = 0.95  # of a nominal rate
WANTED_ACCURACY = 97.0


def maypole_program() -> str:
    built = Path(os.environ.get("MAYPOLE_BUILD", ROOT / "build")) / "maypole"
    found = str(built) if built.exists() else shutil.which("maypole")
    if not found:
        sys.exit("demo: the program `maypole` is neither built nor on the path: run `make build` first")
    return found


def train(out: Path, name: str, options: list[str], epochs: int) -> tuple[dict, float]:
    """Runs examples/digits.py on two workers; shows rank 0's progress; returns the report and the accuracy in percent."""
    report, log = out / f"{name}.report.json", out / f"{name}.log"
    command = [maypole_program(), "run", "-n", "2", "--report", str(report), *options, "--", sys.executable,
               str(ROOT / "examples" / "digits.py"), "--epochs", str(epochs)]
    accuracy = None
    with log.open("w") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            file.write(line)
            text = re.sub(r"^\[\d+\] ?", "", line.rstrip())
            if text.startswith(("epoch ", "test accuracy ")):
                print(f"    {text}", flush=True)
            if match := re.match(r"test accuracy ([\d.]+) %", text):
                accuracy = float(match[1])
    if process.returncode != 0 or accuracy is None:
        sys.stderr.write(log.read_text()[-4000:])
        sys.exit(f"demo: `{' '.join(command)}` ended with code {process.returncode}; all its output is in {log}")
    return json.loads(report.read_text()), accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=ROOT / "demo-out")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    print("Two workers on this machine train a convolutional network on scikit-learn's 1,797 handwritten digits.")
    print("First a short run over an unpaced link, to see how long forward and backward (F+B) take here:", flush=True)
    # Long enough for the tuning of groups (at most 58 iterations) to end: only what comes after it is in the report.
    measured, _ = train(arguments.out, "unpaced", ["--schedule", "sync", "--transport", "tcp"], 8)
    compute = measured["forward_s"] + measured["backward_s"]
    num_bytes = sum(group["bytes"] for group in measured["groups"])
    megabits = max(10, round(num_bytes * 8 / compute / PAYLOAD_SHARE / 1e7) * 10)
    communication = num_bytes / (megabits * 1e6 / 8 * PAYLOAD_SHARE)
    remark = (f"The link is paced: each ring edge is held to {megabits} Mbps, so that the {num_bytes / 1e6:.1f} MB of gradients take "
              f"C = {communication * 1e3:.0f} ms; F+B took {compute * 1e3:.0f} ms.")
    print(f"\n{remark}\nSo no schedule can do an iteration in less than max(F+B, C). All four in turn:")

    results = {}
    for schedule, meaning in SCHEDULES.items():
        print(f"\n  {schedule}: {meaning}", flush=True)
        timeline = arguments.out / f"{schedule}.timeline.json"
        options = ["--schedule", schedule, "--bandwidth", f"{megabits}Mbps", "--timeline", str(timeline)]
        results[schedule] = train(arguments.out, schedule, options, arguments.epochs)

    panels = [
        make_panel(f"{schedule}: {meaning}", arguments.out / f"{schedule}.timeline.json") for schedule, meaning in SCHEDULES.items()
    ]
    picture = arguments.out / "timelines.svg"
    picture.write_text(draw(panels, "Two workers, four schedules: the same two iterations", remark))

    slowest = results["sync"][0]["iteration_s"]
    print(f"\n{remark}\n")
    print(f"{'schedule':9} {'s/iteration':>11} {'F+B s':>8} {'RS s':>8} {'AG s':>8} {'exposed s':>10} {'bound s':>8} {'of bound':>9} "
          f"{'speed-up':>9} {'test accuracy':>14}")
    for schedule, (report, accuracy) in results.items():
        iteration = report["iteration_s"]
        print(f"{schedule:9} {iteration:11.4f} {report['forward_s'] + report['backward_s']:8.4f} {report['reduce_scatter_s']:8.4f} "
              f"{report['all_gather_s']:8.4f} {report['exposed_s']:10.4f} {report['bound_s']:8.4f} "
              f"{100 * report['bound_s'] / iteration:7.1f} % {slowest / iteration:8.2f}x {accuracy:12.1f} %")
    print(f"\nBoth workers' timelines, two iterations of each schedule on one scale: {picture}")
    print(f"The same for a trace viewer such as Perfetto: {arguments.out}/*.timeline.json; reports and logs lie beside them.")
    print(f"Took {time.monotonic() - began:.0f} s.")
    low = [schedule for schedule, (_, accuracy) in results.items() if accuracy < WANTED_ACCURACY]
    if low:
        sys.exit(f"demo: {', '.join(low)} stayed below {WANTED_ACCURACY:.0f} % accuracy, which every schedule should reach")


if __name__ == "__main__":
    main()
