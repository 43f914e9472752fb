# SPDX-License-Identifier: Apache-2.0
"""`maypole run --report --timeline --json`: what the workers measured."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from running import python, run, sh

# ---- report and timeline ----

WORKER = """import json, os, sys
rank = int(os.environ['RANK'])
scale = [1.0, 1.1, 2.0][rank]
group = {'bytes': 1000, 'reduce_scatter_s': 0.1 * scale, 'all_gather_s': 0.2 * scale, 'exposed_s': 0.3 * scale}
report = {'rank': rank, 'iterations': 9, 'iteration_s': 1.0, 'forward_s': 0.2 * scale, 'backward_s': 0.4 * scale,
          'reduce_scatter_s': 0.1, 'all_gather_s': 0.2, 'exposed_s': 0.3, 'communication_s': 0.3, 'bound_s': 0.8,
          'schedule': 'weave', 'update': 'replicated', 'world_size': 3, 'groups': [group]}
json.dump(report, open(os.environ['MAYPOLE_REPORT_DIR'] + '/rank-%d.json' % rank, 'w'))
if 'MAYPOLE_TIMELINE_DIR' in os.environ:
    events = [{'ph': 'X', 'name': 'F', 'ts': i, 'dur': 1, 'pid': os.getpid(), 'tid': 1} for i in range(EVENTS)]
    json.dump({'traceEvents': events}, open(os.environ['MAYPOLE_TIMELINE_DIR'] + '/rank-%d.json' % rank, 'w'))
"""


def test_reports_become_one_of_medians_and_a_table(here):
    done = run("-n", "3", "--report", "r.json", "--timeline", "t.json", *python(WORKER.replace("EVENTS", "4")))
    assert done.returncode == 0, done.stderr
    report = json.loads((here / "r.json").read_text())
    assert set(report) == set(
        ["iteration_s", "forward_s", "backward_s", "reduce_scatter_s", "all_gather_s", "exposed_s", "bound_s"]
        + ["schedule", "update", "world_size", "machine", "commit", "groups"]
    )
    assert report["forward_s"] == pytest.approx(0.22)
    assert report["groups"][0]["exposed_s"] == pytest.approx(0.33)
    assert "80.0 % of bound reached" in done.stderr
    assert "rank 2 on host localhost is slow" in done.stderr
    events = json.loads((here / "t.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2}
    assert sum(event["ph"] == "X" for event in events) == 12


def test_json_is_one_object_on_standard_output(here):
    done = run("-n", "3", "--json", *python(WORKER + "print('words')"))
    summary = json.loads(done.stdout)
    assert set(summary) == {"job_id", "exit_code", "seconds", "world_size", "failed_rank", "failed_host", "report"}
    assert summary["exit_code"] == 0 and summary["report"]["schedule"] == "weave"
    assert done.stderr.count("words") == 3
    failed = run("-n", "2", "--json", *sh("[ $RANK = 0 ] || exit 6; exec sleep 1000"))
    summary = json.loads(failed.stdout)
    assert (summary["exit_code"], summary["failed_rank"], summary["failed_host"], summary["report"]) == (6, 1, "localhost", None)


def test_a_job_that_measured_nothing_says_so(here):
    done = run("--report", "r.json", "--", "true")
    assert done.returncode == 0
    assert "--report r.json is not written" in done.stderr
    assert "earlier run" not in done.stderr


def test_a_run_too_short_to_measure_anything_says_so_and_writes_no_zeros(here):
    (here / "r.json").write_text("of an earlier run")
    done = run("-n", "3", "--report", "r.json", *python(WORKER.replace("'iterations': 9", "'iterations': 0")))
    assert done.returncode == 0, done.stderr
    assert "--report r.json is not written: the run was over before any iteration was measured" in done.stderr
    assert "what communication cost" not in done.stderr
    assert not (here / "r.json").exists()
    done = run("-n", "3", *python(WORKER.replace("'iterations': 9", "'iterations': 0")))
    assert "what communication cost is not known: the run was over" in done.stderr


def test_files_of_an_earlier_run_do_not_pass_for_those_of_one_that_measured_nothing(here):
    for name in ("r.json", "t.json"):
        (here / name).write_text("of an earlier run")
    done = run("--report", "r.json", "--timeline", "t.json", "--", "true")
    assert done.returncode == 0
    assert done.stderr.count("the file of an earlier run is removed") == 2
    assert not (here / "r.json").exists() and not (here / "t.json").exists()
    assert "earlier run" not in run("--report", "/dev/null", "--", "true").stderr


def test_a_file_of_an_earlier_run_is_named_where_the_job_failed(here):
    (here / "r.json").write_text("of an earlier run")
    done = run("--report", "r.json", "--timeline", "t.json", *sh("echo because >&2; exit 3"))
    assert done.returncode == 3
    assert (here / "r.json").read_text() == "of an earlier run"
    assert done.stderr.count("--report r.json is not written, since the job failed: the file there is of an earlier run") == 1
    assert "t.json" not in done.stderr
    assert done.stderr.endswith("because\n")


def test_a_full_disk_is_one_clear_line(here):
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    small = here / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode != 0:
        pytest.skip("this machine cannot mount a tmpfs")
    try:
        (small / "t.json").write_text("the old one")
        done = run("-n", "3", "--timeline", str(small / "t.json"), *python(WORKER.replace("EVENTS", "20000")))
        assert (small / "t.json").read_text() == "the old one"
        assert list(small.iterdir()) == [small / "t.json"]
    finally:
        subprocess.run(["umount", small], check=True)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "--timeline" in line and "No space left on device" in line]
    kept = Path(line.partition("; it is kept in ")[2])
    assert len(json.loads(kept.read_text())["traceEvents"]) >= 60000
    kept.unlink()


def test_a_damaged_report_is_named(here):
    done = run("-n", "2", *sh('[ $RANK = 0 ] || echo "{" > $MAYPOLE_REPORT_DIR/rank-1.json'))
    assert done.returncode == 0
    assert "the report of rank 1 is damaged" in done.stderr
