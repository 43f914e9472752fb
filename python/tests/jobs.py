# SPDX-License-Identifier: Apache-2.0
"""Starts jobs of Python workers with `maypole run`."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build" / "maypole"
LIMIT_S = 200


def run_job(ranks, script, *arguments, options=(), **environment):
    """Runs a script (a path, or its text) on so many ranks; returns the finished process with its output as text."""
    command = [sys.executable, str(script)] if isinstance(script, Path) else [sys.executable, "-c", textwrap.dedent(script)]
    if ranks > 0:
        command = [str(PROGRAM), "run", "-n", str(ranks), *options, "--", *command]
    path = os.pathsep.join([str(ROOT / "python"), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
    )
