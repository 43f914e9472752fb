# SPDX-License-Identifier: Apache-2.0
"""The cases of cases/, each a promise of the front end, on several ranks. One job per configuration runs all of them."""

import functools
import json
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import worker
from jobs import run_job

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
NAMES = [function.__name__ for function in worker.CASES]


@functools.cache
def results(backend, schedule, update, ranks):
    """What every rank wrote, and the job's output."""
    with tempfile.TemporaryDirectory() as folder:
        done = run_job(ranks, Path(worker.__file__), folder, schedule, update, options=("--backend", backend))
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
        assert outcome == "ok", f"rank {rank}: {outcome}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "-".join(map(str, c)))
def test_the_job_ends_well(configuration):
    _, done = results(*configuration)
    assert done.returncode == 0, done.stderr[-4000:]
