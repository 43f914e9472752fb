# SPDX-License-Identifier: Apache-2.0
"""Starts `maypole run` for the tests, and looks at what it has started."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "maypole"
LIMIT_S = 60
NSENTER = "nsenter --net=/run/netns/{host} {command}"


def need_program() -> None:
    assert PROGRAM.exists(), "build/maypole is not built: run `make build`"


def marked_processes() -> list[int]:
    """Processes that carry this test's mark in their environment: everything that a run has started and not ended."""
    mark = f"MAYPOLE_TEST_MARK={os.environ['MAYPOLE_TEST_MARK']}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def until(condition, what: str, limit_s: float = LIMIT_S):
    """Waits for a condition that another process brings about."""
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {limit_s} s"
        time.sleep(0.01)
    return value


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, "run", *arguments], capture_output=True, text=True, timeout=LIMIT_S, **options)


def start(*arguments: str, **options) -> subprocess.Popen:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([PROGRAM, "run", *arguments], **options)


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


def python(script: str) -> list[str]:
    return ["--", sys.executable, "-c", script]


def environments(text: str) -> dict[int, dict[str, str]]:
    """Parses the prefixed output of `env` by rank."""
    ranks: dict[int, dict[str, str]] = {}
    for line in text.splitlines():
        rank, variable = re.fullmatch(r"\[(\d+)\] (.*)", line).groups()
        name, _, value = variable.partition("=")
        ranks.setdefault(int(rank), {})[name] = value
    return ranks
