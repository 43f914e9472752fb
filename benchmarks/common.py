# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: where a row was measured, the allocator settings that every peer gets, and how results are kept."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Keep freed memory instead of giving it back: page faults are dear in virtual machines, and would be counted as communication.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


def worker_environment(**extra: str) -> dict[str, str]:
    """The environment of every peer's worker: one thread, the same allocator, our Python sources on the path."""
    return {**os.environ, **ALLOCATOR, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "MAYPOLE_TUNING_CACHE": "off", **extra}


def machine() -> str:
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


def commit() -> str:
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


class Rows:
    """Rows of bench/NAME.json; written after every addition, so that an interrupted run keeps what it has measured."""

    def __init__(self, name: str, kind: str):
        self.path = ROOT / "bench" / f"{name}.json"
        self.rows: list[dict] = []
        self._common = {"machine": machine(), "commit": commit(), "kind": kind}

    def add(self, **values) -> None:
        self.rows.append({**self._common, **values})
        self.path.parent.mkdir(exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text("[\n" + ",\n".join(json.dumps(row) for row in self.rows) + "\n]\n")
        partial.rename(self.path)


def maypole_program() -> str:
    path = Path(os.environ.get("MAYPOLE_BUILD", ROOT / "build")) / "maypole"
    if not path.exists():
        raise SystemExit(f"{path} is missing: run `make build` first")
    return str(path)


def tagged_results(output: str) -> list[dict]:
    """The JSON objects after `RESULT ` in the lines of a peer's output, whatever prefix a launcher put before it."""
    return [json.loads(line.split("RESULT ", 1)[1]) for line in output.splitlines() if "RESULT {" in line]


def run_checked(command: list[str], what: str, timeout: float, **options) -> str:
    """Runs a command in a process group of its own and returns its output; its end, also by timeout, ends all it started."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options)
    try:
        output, _ = process.communicate(timeout=timeout)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        output, _ = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise RuntimeError(f"{what} did not end within {timeout:.0f} s; its last output:\n{output[-2000:]}") from None
        raise
    if process.returncode:
        output = "\n".join(line for line in output.splitlines() if "RESULT {" not in line)
        raise RuntimeError(f"{what} ended with code {process.returncode}:\n{output[-3000:]}")
    return output


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
