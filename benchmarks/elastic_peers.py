# SPDX-License-Identifier: Apache-2.0
"""What a lost worker costs under torchrun, whose elastic agent then starts all workers anew; it does the same when their number changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import ROOT, Rows, progress, worker_environment

LIMIT_S = 150
WORKERS = 2


def steps_written(folder: Path) -> dict[int, list[dict]]:
    """The whole lines of each steps-N.jsonl, by N."""
    found = {}
    for path in folder.glob("steps-*.jsonl"):
        text = path.read_text()
        found[int(path.stem.split("-")[1])] = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return found


class Torchrun:
    """One agent of torchrun and its workers."""

    def __init__(self, folder: Path, state_bytes: int):
        self.folder = folder
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORKERS}", "--max-restarts=3"]
        command += ["--monitor-interval=0.1", "-m", "benchmarks.torchrun_worker", str(folder), str(state_bytes)]
        self.output = (folder / "output").open("w")
        self.process = subprocess.Popen(command, cwd=ROOT, env=worker_environment(), stdout=self.output, stderr=subprocess.STDOUT)

    def steps(self) -> dict[int, list[dict]]:
        """By process."""
        return steps_written(self.folder)

    def wait_for_steps(self, besides: set[int], count: int) -> dict[int, list[dict]]:
        """Until all workers that are not `besides` have made `count` steps."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            new = {pid: lines for pid, lines in self.steps().items() if pid not in besides and len(lines) >= count}
            if len(new) == WORKERS:
                return new
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"torchrun's workers do not train:\n{(self.folder / 'output').read_text()[-2000:]}")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        (self.folder / "end").touch()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait(LIMIT_S)
        self.output.close()


def measure_torchrun(rows: Rows, count: int, state_bytes: int) -> None:
    for _ in range(count):
        with tempfile.TemporaryDirectory() as name, Torchrun(Path(name), state_bytes) as job:
            old = set(job.wait_for_steps(set(), 15))  # there is a snapshot
            at = time.time()
            os.kill(max(old), signal.SIGKILL)
            new = job.wait_for_steps(old, 1)
            lost = max(lines[0]["at"] for lines in new.values()) - at
            rows.add(kind="failure", peer="torchrun", fault="killed", workers=WORKERS, lost_s=lost, state_bytes=state_bytes)
            progress(f"torchrun, a killed worker of {WORKERS}: {lost:.2f} s")
