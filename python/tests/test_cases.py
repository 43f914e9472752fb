# SPDX-License-Identifier: Apache-2.0
"""The cases of cases/, each a promise of the front end, on several ranks. One job per configuration runs all of them."""

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import worker
from jobs import JobHangsError, run_job

CONFIGURATIONS = [
    ("native", "weave", "replicated", 3),
    ("native", "weave", "sharded", 2),
    ("native", "dear", "replicated", 2),
    ("native", "dear", "sharded", 3),
    ("native", "wfbp", "replicated", 3),
    ("native", "sync", "replicated", 2),
    ("c10d", "weave", "replicated", 3),
    ("c10d", "wfbp", "replicated", 2),
]
HUNG = -1  # the return code of a job that did not end by itself
NAMES = [function.__name__ for function in worker.CASES]


@functools.cache
def results(backend, schedule, update, ranks):
    """What every rank wrote, and the job's output. A job that hung is not tried again for every case: each fails with what it said."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = run_job(ranks, Path(worker.__file__), folder, schedule, update, options=("--backend", backend))
        except JobHangsError as error:
            done = subprocess.CompletedProcess([], HUNG, "", str(error))
        by_rank = []
        for rank in range(ranks):
            path = Path(folder) / f"rank-{rank}.json"
            by_rank.append(json.loads(path.read_text()) if path.exists() else {})
        return by_rank, done


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "-".join(map(str, c)))
def test_case(configuration, name):
    by_rank, done = results(*configuration)
    for rank, outcomes in enumerate(by_rank):
        outcome = outcomes.get(name, "not run")
        assert outcome == "ok", f"rank {rank}: {outcome}\n{done.stdout[-2000:]}{done.stderr[-8000:]}"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "-".join(map(str, c)))
def test_the_job_ends_well(configuration):
    _, done = results(*configuration)
    assert done.returncode == 0, done.stderr[-8000:]
