# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs under `maypole up`: the scheduler changes their rings while they train, and nothing of the training is lost."""

import json
import subprocess
import time

import pytest
from elastic_jobs import check_digests, check_ledgers, environment, lines_of, script
from jobs import LIMIT_S, PROGRAM

CLUSTER = """\
version: 1
racks: [{id: r0, uplink: 10Gbps}]
servers:
  - {id: s0, rack: r0, capacity: {cpu: 2}, bandwidth: 1Gbps}
  - {id: s1, rack: r0, capacity: {cpu: 2}, bandwidth: 1Gbps}
"""


class Daemon:
    """`maypole up` over two servers of two cores each, played by this machine, and its commands."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {**environment(), "MAYPOLE_DATA_DIR": str(folder / "data"), "MAYPOLE_HEARTBEAT": "30s"}
        for name in ("MAYPOLE_ADDRESS", "MAYPOLE_TOKEN"):
            self.environment.pop(name, None)
        (folder / "cluster.yaml").write_text(CLUSTER)
        self.up()

    def up(self):
        command = [PROGRAM, "up", "--listen", "127.0.0.1:0", "--slot", "2s", "--cluster", "cluster.yaml"]
        self.process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert "listens" in self.process.stdout.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ok(self, *arguments):
        done = subprocess.run(
            [PROGRAM, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, job):
        return json.loads(self.ok("show", "--json", job))

    def until(self, job, what, holds):
        deadline = time.monotonic() + LIMIT_S
        while not holds(found := self.job(job)):
            assert time.monotonic() < deadline, f"{what} did not come: {found}\n{self.ok('logs', job)}"
            time.sleep(0.05)
        return found


@pytest.fixture
def daemon(tmp_path):
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.ok("down", "--stop-jobs")
    daemon.process.wait(LIMIT_S)


def steps(folder):
    return max((line["step"] for lines in lines_of(folder, "ledger").values() for line in lines), default=-1)


def until_steps(folder, more):
    goal = steps(folder) + more
    deadline = time.monotonic() + LIMIT_S
    while steps(folder) < goal:
        assert time.monotonic() < deadline, "training stands still"
        time.sleep(0.05)


def turns(folder):
    """The numbers of workers where they began to rise or fall; on a busy machine newcomers come one by one."""
    lines = sorted((line for lines in lines_of(folder, "ledger").values() for line in lines), key=lambda line: line["step"])
    found = []
    for size in (line["workers"] for line in lines):
        if found[-1:] == [size]:
            continue
        if len(found) > 1 and (found[-1] > found[-2]) == (size > found[-1]):
            found.pop()
        found.append(size)
    return found


def test_a_job_grows_and_shrinks_with_what_is_free_and_trains_on_without_the_daemon(daemon):
    folder = daemon.folder / "job"
    folder.mkdir()
    wait = ["--", "sh", "-c", "while [ ! -e {} ]; do sleep 0.05; done"]
    blocker = daemon.ok("submit", "--workers", "2", *wait[:-1], wait[-1].format("first"))
    daemon.until(blocker, "its start", lambda job: job["state"] == "running")
    settings = {"until_end": True, "epochs": 1000, "pause": 0.02}
    job = daemon.ok("submit", "--name", "grows", "--workers", "1:4", "--utility", "sqrt", "--retries", "1", "--", *script(folder, settings))
    assert daemon.until(job, "two workers", lambda job: job["state"] == "running")["workers"] == 2
    until_steps(folder, 3)

    (daemon.folder / "first").touch()
    found = daemon.until(job, "growth", lambda job: job["workers"] == 4)
    assert found["ring"] in (["s0", "s0", "s1", "s1"], ["s1", "s1", "s0", "s0"])
    until_steps(folder, 3)

    wide = daemon.ok("submit", "--workers", "3", *wait[:-1], wait[-1].format("second"))
    daemon.until(wide, "room for the other", lambda job: job["state"] == "running")
    found = daemon.until(job, "one worker", lambda job: job["workers"] == 1 and job["resizes"] == 2)
    assert (found["retries"], found["state"]) == (0, "running")
    until_steps(folder, 3)

    daemon.kill()
    until_steps(folder, 5)
    daemon.up()
    found = daemon.until(job, "the job", lambda job: job["state"] == "running")
    assert (found["workers"], found["resizes"]) == (1, 2)
    (daemon.folder / "second").touch()
    daemon.until(job, "growth after a restart", lambda job: job["workers"] == 4 and job["resizes"] == 3)
    until_steps(folder, 3)

    (folder / "end").touch()
    assert daemon.ok("wait", job) == ""
    assert daemon.job(job)["exit_code"] == 0
    check_ledgers(folder, num_steps=None)
    check_digests(folder)
    assert turns(folder) == [2, 4, 1, 4]
    logs = daemon.ok("logs", job)
    assert "as rank 0 of 4" in logs
    assert not [line for line in logs.splitlines() if line.startswith("[0] [")], "each line has its worker in front once"


def test_a_lost_worker_is_replaced_within_its_job_while_retries_last(daemon):
    folder = daemon.folder / "job"
    folder.mkdir()
    settings = {"until_end": True, "epochs": 1000, "pause": 0.02, "faults": [{"worker": 1, "step": 3, "where": "forward", "do": "kill"}]}
    job = daemon.ok("submit", "--workers", "2:3", "--retries", "1", "--", *script(folder, settings))
    daemon.until(job, "the loss", lambda job: job["retries"] == 1)
    deadline = time.monotonic() + LIMIT_S
    while not any(line["workers"] == 3 for line in lines_of(folder, "ledger").get(3, [])):
        assert time.monotonic() < deadline, "no replacement trains"
        time.sleep(0.05)
    found = daemon.job(job)
    assert (found["state"], found["workers"], found["resizes"]) == ("running", 3, 0)
    (folder / "end").touch()
    assert daemon.ok("wait", job) == ""
    check_ledgers(folder, num_steps=None)
