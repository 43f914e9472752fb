# SPDX-License-Identifier: Apache-2.0
"""Faults drawn from a seed, at a daemon and at what it has started, while jobs run; and what must be true afterwards.

When a fault strikes is arbitrary and nothing here asks how long anything takes. Each epoch of a job holds a lock of its own in every
process, and each worker tells in the job's file what it does; so an epoch that meets an older one alive says so, whatever killed what.
"""

import contextlib
import fcntl
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from daemon_cluster import Cluster, makes_groups, marked, start_ticks
from running import until

RETRIES = 3
PATIENCE_S = 240
FAULTS = ("kill daemon", "kill shim", "kill worker", "stop daemon", "stop shim", "stop worker", "thaw", "cancel")
NETWORK = ("kill server", "cut link", "mend link")
FULL_DISK = ("fill disk", "free disk", "kill daemon on a full disk")

BEGIN = """
rest=${MAYPOLE_WORKER#*/*/}; epoch=${rest%/*}; rank=${rest#*/}; job=$MAYPOLE_JOB_ID
tell() { echo "$epoch $rank $1" >> told-$job; }
exec 9> lock-$job-$epoch-$rank
flock -n 9 || tell overlap
older=1
while [ $older -lt $epoch ]; do
  for lock in lock-$job-$older-*; do [ ! -e $lock ] || flock -n -s $lock true || tell overlap; done
  older=$((older+1))
done
tell start
"""
STEPS = "for step in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do tell step; echo step $step; sleep 0.1; done; tell end\n"
SCRIPTS = {
    "plain": BEGIN + STEPS,
    "stubborn": "trap '' TERM\n" + BEGIN + STEPS,
    "with children": BEGIN + "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' &\nsleep 1000 &\n" + STEPS,
    "changed children": BEGIN + "setsid env -i sh -c 'while :; do sleep 0.1; done' &\n" + STEPS,
    "failing": BEGIN + STEPS + "[ $epoch -gt 1 ]\n",
    "ring": BEGIN + f"exec {sys.executable} ring.py $epoch $rank told-$job\n",
}
RING = """
import sys
import torch
import maypole.torch as maypole
epoch, rank, told = sys.argv[1:]
maypole.init()
with open(told, "a", buffering=1) as told:
    for step in range(20):
        total = maypole.all_reduce(torch.full((50_000,), 1.0), op="sum")
        assert total.eq(maypole.size()).all()
        told.write(f"{epoch} {rank} step\\n")
    told.write(f"{epoch} {rank} end\\n")
"""


class Chaos:
    """`namespaces`: of the servers, where they are network namespaces with an interface eth0."""

    def __init__(self, cluster: Cluster, seed: int, faults: tuple, jobs: int, namespaces: list[str] = ()):
        self.cluster, self.folder = cluster, cluster.folder
        self.random = random.Random(seed)
        self.faults, self.most_jobs = faults, jobs
        self.namespaces, self.cut = list(namespaces), set()
        self.jobs: dict[str, int] = {}  # how many workers
        self.cancelled: set[str] = set()
        self.stopped: list[int] = []
        self.ballast: Path = cluster.data / "ballast"
        self.happened: list[str] = []
        missing = {"ring": not importlib.util.find_spec("torch"), "changed children": not makes_groups()}
        self.kinds = [kind for kind in SCRIPTS if not missing.get(kind)]

    # --- what there is ---

    def shims(self) -> list[int]:
        found = []
        for claim in self.cluster.data.glob("jobs/*/*/*/claim"):
            words = claim.read_text().split()
            if len(words) == 3 and not (claim.parent / "exit").exists() and start_ticks(int(words[0])) == int(words[1]):
                found.append(int(words[0]))
        return sorted(found)

    def workers(self) -> list[int]:
        found = []
        for shim in self.shims():
            with contextlib.suppress(OSError):
                found += [int(word) for word in Path(f"/proc/{shim}/task/{shim}/children").read_text().split()]
        return sorted(found)

    def full(self) -> bool:
        return self.ballast.exists()

    # --- what happens ---

    def submit(self) -> None:
        kind = self.kinds[len(self.jobs) % len(self.kinds)]
        workers = 2 if kind == "ring" else self.random.choice((1, 1, 2))
        done = self.cluster.call("submit", "--retries", str(RETRIES), "--workers", str(workers), "--", "sh", "-c", SCRIPTS[kind])
        if self.full():
            assert done.returncode in (0, 75), done.stderr  # what the store still finds room for is kept
        else:
            assert done.returncode == 0, done.stderr
        if done.returncode == 0:
            self.jobs[done.stdout.strip()] = workers

    def signal_one(self, pids: list[int], number: int) -> None:
        if pids:
            pid = self.random.choice(pids)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if number == signal.SIGSTOP:
                self.stopped.append(pid)

    def thaw(self) -> None:
        for pid in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()

    def kill_server(self) -> None:
        """Everything that runs in one namespace at once, as when its machine loses power."""
        name = self.random.choice(self.namespaces)
        for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def set_link(self, name: str, state: str) -> None:
        subprocess.run(["ip", "-n", name, "link", "set", "eth0", state], check=True)
        (self.cut.add if state == "down" else self.cut.discard)(name)

    def mend(self) -> None:
        for name in list(self.cut):
            self.set_link(name, "up")

    def restart(self) -> None:
        self.cluster.kill()
        line = self.cluster.up()
        if not line and self.full():  # refused for want of room, in one line
            message = self.cluster.daemon.communicate()[1]
            assert len(message.splitlines()) == 1 and message.startswith("maypole up: "), message
            self.free()
            line = self.cluster.up()
        assert "listens on" in line, self.cluster.daemon.communicate()[1]

    def fill(self) -> None:
        with self.ballast.open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while ballast.write(b"x" * size):
                        pass

    def free(self) -> None:
        self.ballast.unlink(missing_ok=True)

    def strike(self, fault: str) -> None:
        self.happened.append(fault)
        if fault == "kill daemon":
            self.restart()
        elif fault == "stop daemon":
            self.cluster.daemon.send_signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(0, 0.5))
            self.cluster.daemon.send_signal(signal.SIGCONT)
        elif fault == "kill shim":
            self.signal_one(self.shims(), signal.SIGKILL)
        elif fault == "stop shim":
            self.signal_one(self.shims(), signal.SIGSTOP)
        elif fault == "kill worker":
            self.signal_one(self.workers(), signal.SIGKILL)
        elif fault == "stop worker":
            self.signal_one(self.workers(), signal.SIGSTOP)
        elif fault == "thaw":
            self.thaw()
        elif fault == "cancel":
            self.cancel()
        elif fault == "kill server":
            self.kill_server()
        elif fault == "cut link":
            self.set_link(self.random.choice(self.namespaces), "down")
        elif fault == "mend link":
            self.mend()
        elif fault == "fill disk":
            self.fill()
        elif fault == "free disk":
            self.free()
        else:
            self.fill()
            self.restart()

    def cancel(self) -> None:
        job = self.random.choice(list(self.jobs))
        done = self.cluster.call("cancel", job)
        ended = done.returncode == 1 and "has ended already" in done.stderr
        assert done.returncode == 0 or ended or (self.full() and done.returncode == 75), done.stderr
        if done.returncode == 0:
            self.cancelled.add(job)

    def run(self, faults: int) -> None:
        drawn = list(self.faults) * (faults // len(self.faults) + 1)
        self.random.shuffle(drawn)  # each kind as often as the others
        for fault in drawn[:faults]:
            while len(self.jobs) < self.most_jobs and not self.full() and self.random.random() < 0.8:
                self.submit()
            time.sleep(self.random.uniform(0, 0.4))
            self.strike(fault)
            if self.full():
                self.submit()
        self.free()
        self.mend()
        while len(self.jobs) < self.most_jobs:
            self.submit()
        self.thaw()

    # --- what must be true ---

    def check(self) -> None:
        for job, workers in self.jobs.items():
            found = until(
                lambda job=job: (found := self.cluster.job(job))["state"] in ("finished", "failed", "cancelled") and found,
                f"the end of job {job} after {self.happened}", PATIENCE_S,
            )  # fmt: skip
            told = self.folder / f"told-{job}"
            lines = [line.split() for line in told.read_text().splitlines()] if told.exists() else []
            context = (found, self.happened, lines)
            epochs = [int(epoch) for epoch, _, _ in lines]
            assert epochs == sorted(epochs), ("an older epoch told something after a younger one", context)
            assert "overlap" not in [what for _, _, what in lines], ("an older epoch was alive", context)
            starts = [tuple(line) for line in lines if line[2] == "start"]
            assert len(starts) == len(set(starts)), ("a worker was started twice", context)
            if found["state"] == "finished":
                ends = {rank for epoch, rank, what in lines if what == "end" and int(epoch) == epochs[-1]}
                assert ends == {str(rank) for rank in range(workers)}, context
            elif found["state"] == "failed":
                gave_up = found["retries"] == RETRIES or found["reason"].startswith("could not be started")
                assert found["reason"] and gave_up, context
            else:
                assert job in self.cancelled, context

    def check_nothing_left(self) -> None:
        for lock in self.folder.glob("lock-*"):
            with lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by whatever a job started, whatever its environment
        identity = self.cluster.identity()
        assert marked(f"MAYPOLE_WORKER={identity}/") == []


def descriptors(cluster: Cluster) -> int:
    return len(os.listdir(f"/proc/{cluster.daemon.pid}/fd"))


def run_chaos(
    cluster: Cluster, seed: int, faults: tuple, number: int, jobs: int, servers: str, namespaces: list[str] = ()
) -> list[dict]:
    """What became of the jobs."""
    seed = int(os.environ.get("MAYPOLE_CHAOS_SEED", seed))
    (cluster.folder / "ring.py").write_text(RING)
    (cluster.folder / "cluster.yaml").write_text(servers)
    cluster.options = ("--cluster", "cluster.yaml")
    cluster.up()
    before = descriptors(cluster)
    chaos = Chaos(cluster, seed, faults, jobs, namespaces)
    chaos.run(number)
    chaos.check()
    jobs = [cluster.job(job) for job in chaos.jobs]
    print(f"seed {seed}:", chaos.happened, [(found["state"], found["retries"], found["reason"]) for found in jobs])
    chaos.check_nothing_left()
    until(lambda: descriptors(cluster) == before, "the daemon's last descriptor of a job being closed")
    cluster.ok("down")  # refuses while anything runs
    assert cluster.daemon.wait(PATIENCE_S) == 0
    with (cluster.data / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return jobs


@contextlib.contextmanager
def small_disk(folder: Path):
    """True: there is one."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "maypole-test", folder], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if os.path.ismount(folder):
            subprocess.run(["umount", "--lazy", folder])


def end(cluster: Cluster) -> None:
    if cluster.daemon is not None and cluster.daemon.poll() is None:
        cluster.daemon.send_signal(signal.SIGCONT)
        cluster.call("down", "--stop-jobs")
        cluster.daemon.kill()


def long_chaos(folder: Path, namespaces: list[str], servers: str, seed: int, faults: int) -> dict:
    """On servers that are namespaces, with a data directory that fills up now and then; a row of what became of the jobs."""
    cluster = Cluster(folder)
    began = time.monotonic()
    with small_disk(cluster.data) as mounted:
        kinds = FAULTS + NETWORK + (FULL_DISK if mounted else ())
        try:
            jobs = run_chaos(cluster, seed, kinds, faults, max(30, faults // 5), servers, namespaces)
        finally:
            end(cluster)
    states = [job["state"] for job in jobs]
    return {"jobs": len(jobs), **{state: states.count(state) for state in ("finished", "failed", "cancelled")},
            "retries": sum(job["retries"] for job in jobs), "seconds": time.monotonic() - began}  # fmt: skip
