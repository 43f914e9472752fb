# SPDX-License-Identifier: Apache-2.0
"""Starts jobs of Python workers with `maypole run`."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build" / "maypole"
LIMIT_S = 200  # of a job, before it is ended
STACKS_S = 150  # when worker.py says where it stands
TIMEOUT_S = 100  # of a wait for a peer, so that the error of the core comes before either


class JobHangsError(AssertionError):
    """A job took longer than its limit; the message holds all that its ranks wrote, their stacks at the end included."""


def run_job(ranks, script, *arguments, options=(), limit_s=LIMIT_S, **environment):
    """Runs a script (a path, or its text) on so many ranks; returns the finished process with its output as text."""
    command = [sys.executable, str(script)] if isinstance(script, Path) else [sys.executable, "-c", textwrap.dedent(script)]
    if ranks > 0:
        command = [str(PROGRAM), "run", "-n", str(ranks), *options, "--", *command]
    path = os.pathsep.join([str(ROOT / "python"), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    settings = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MAYPOLE_TIMEOUT": f"{TIMEOUT_S}s", "MAYPOLE_TUNING_CACHE": "off"} | environment
    started = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    )
    with started:
        try:
            output, errors = started.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            output, errors = _last_words(started)
            raise JobHangsError(f"{command} took longer than {limit_s} s\n{output}\n{errors}") from None
        except BaseException:
            started.kill()
            raise
    return subprocess.CompletedProcess(started.args, started.returncode, output, errors)


def _last_words(started):
    """Ends a job that hangs; returns its output. The launcher ends everything that it started when it is terminated, not when killed."""
    started.send_signal(signal.SIGTERM)
    try:
        return started.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        started.kill()
        return started.communicate()
