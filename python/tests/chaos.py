# SPDX-License-Identifier: Apache-2.0
"""Faults and resizes, drawn from a seed, that happen to a run; and what must be true of it afterwards.

Nothing here waits for a time to pass: the run is given steps one by one, and each event is over when the run has shown what it has to.
"""

import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

from elastic_jobs import ElasticRun, check_digests, check_ledgers, check_weights, sizes
from jobs import LIMIT_S

EVENTS = ("grow", "shrink", "kill", "kill_two", "cut", "freeze", "thaw", "source_dies", "disk")
DESCRIPTORS_PER_AGENT = 2  # of the launcher
MEMORY_GROWTH = 32 << 20  # of each process, from the first event to the last that it lives to see
WIDTH = 2048
SMALL_FILE = 300_000  # bytes: more than a ledger, less than a checkpoint


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_of(pid):
    """What is its alone: neither files nor what it shares with its peers."""
    resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
    return (resident - shared) * resource.getpagesize()


class Chaos:
    """One run of chaos_train.py between `least` and `most` workers."""

    def __init__(self, folder, seed, start=3, least=2, most=6, heartbeat="8s", replace=False, most_at_once=1, samples=4000):
        self.folder, self.random, self.least, self.most = folder, random.Random(seed), least, most
        (folder / "tmp").mkdir()
        self.run = ElasticRun(
            folder, workers=f"1:{most}", start=start, heartbeat=heartbeat, retries=10**6 if replace else 0, program="chaos_train.py",
            options=["--checkpoint-dir", folder / "kept", "--checkpoint-every", 5], width=WIDTH, samples=samples,
            temporary=folder / "tmp",
        )  # fmt: skip
        self.replace, self.most_at_once, self.samples = replace, most_at_once, samples
        self.members = list(range(start))  # as they must be when what has happened has had its effect
        self.started = start
        self.allowed = 0
        self.happened = []
        self.memory = {}
        self.most_descriptors = {}

    def __enter__(self):
        self.run.__enter__()
        self.settle()
        agents = DESCRIPTORS_PER_AGENT * len(self.members)
        self.descriptors = descriptors_of(self.run.process.pid) - agents  # of the launcher, beside its agents'
        return self

    def __exit__(self, *error):
        self.run.__exit__(*error)

    # --- what the run shows ---

    def at(self):
        """Of each worker that has begun a step: its last line."""
        return {worker: lines[-1] for worker, lines in self.run.digests().items() if lines}

    def newest(self):
        return max((line["step"] for line in self.at().values()), default=0)

    def wait(self, condition, what, step_by_step=True):
        """Until condition() is true. step_by_step: whenever all wait for it, one more step may begin."""
        deadline = time.monotonic() + LIMIT_S
        moved = time.monotonic()
        while not (value := condition()):
            assert self.run.process.poll() is None, self.run.output[-3000:]
            assert time.monotonic() < deadline, f"{what} did not come about after {self.happened}:\n{self.run.output[-3000:]}"
            newest = self.newest()
            if step_by_step and newest > self.allowed and time.monotonic() - moved > 0.03:
                self.allow(newest)
                moved = time.monotonic()
            time.sleep(0.01)
        return value

    def allow(self, step):
        self.allowed = max(self.allowed, step)
        aside = self.folder / "allowed.new"
        aside.write_text(str(self.allowed))
        aside.replace(self.folder / "allowed")

    def settle(self, more=2):
        """Until exactly the members that must be there have trained together."""
        goal = self.newest() + more

        def together():
            at = self.at()
            return all(
                worker in at and at[worker]["step"] >= goal and at[worker]["workers"] == len(self.members) for worker in self.members
            )

        self.wait(together, f"training of workers {self.members}")

    def pid(self, worker):
        return int((self.folder / f"pid-{worker}").read_text())

    def newcomers(self, count):
        """Waits until so many workers that were just started are at their loops; until then nobody has to do a step."""
        new = range(self.started, self.started + count)
        self.started += count
        self.wait(lambda: all((self.folder / f"ready-{worker}").exists() for worker in new), f"the start of {[*new]}", step_by_step=False)
        return [*new]

    # --- events ---

    def happen(self, event):
        began = time.monotonic()
        self.happened.append((event, self.newest(), [*self.members]))
        self.allow(self.newest() + self.random.randrange(1, 4))  # some are in the middle of a step when it comes
        getattr(self, event)()
        self.settle()
        self.happened[-1] += (round(time.monotonic() - began, 2),)

    def grow(self):
        count = min(self.random.randrange(1, self.most_at_once + 1), self.most - len(self.members))
        if count <= 0:
            return self.shrink()
        asked = self.run.begin_resize(len(self.members) + count)
        self.members += self.newcomers(count)
        self._effective(asked)

    def shrink(self):
        if len(self.members) <= self.least:
            return self.grow()
        asked = self.run.begin_resize(len(self.members) - 1)
        self.members.pop()
        self._effective(asked)

    def _effective(self, asked):
        self.wait(lambda: asked.poll() is not None, "the end of a resize")
        output, _ = asked.communicate()
        assert asked.returncode == 0, output

    def kill(self):
        self._lose(self.random.choice(self.members))

    def kill_two(self):
        if len(self.members) < 4:
            return self.kill()
        self._lose(*self.random.sample(self.members, 2))

    def _lose(self, *victims):
        for victim in victims:
            os.kill(self.pid(victim), signal.SIGKILL)
        self._gone(victims)

    def _gone(self, victims):
        self.members = [worker for worker in self.members if worker not in victims]
        if self.replace:
            self.members += self.newcomers(len(victims))

    def cut(self):
        (self.folder / f"cut-{self.random.choice(self.members)}").touch()

    def freeze(self):
        """For longer than is borne. It is ended then, so that nothing of it can wake later."""
        victim = self.random.choice(self.members)
        os.kill(self.pid(victim), signal.SIGSTOP)
        self.wait(lambda: f"worker {victim} gave no sign of life" in self.run.output, f"that worker {victim} is missed")
        self._gone([victim])

    def thaw(self):
        """For 0.2 s, which is borne."""
        victim = self.random.choice(self.members)
        pid = self.pid(victim)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(pid, signal.SIGCONT)

    def source_dies(self):
        """The one whose state a newcomer gets dies while it sends it."""
        if len(self.members) == self.most:
            self.shrink()
        source = self.members[0]
        (self.folder / f"dies-{source}").touch()
        asked = self.run.begin_resize(len(self.members) + 1)
        self.members += self.newcomers(1)
        self.wait(lambda: asked.poll() is not None or f"worker {source} was killed" in self.run.output, "the death of the source")
        self._gone([source])
        self.wait(lambda: asked.poll() is not None, "the end of a resize")
        asked.communicate()

    def disk(self):
        """Checkpoints find no room, and then they do."""
        count = self.run.output.count("cannot be written")
        limits = {self.pid(worker): resource.prlimit(self.pid(worker), resource.RLIMIT_FSIZE) for worker in self.members}
        for pid, (_, hard) in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (SMALL_FILE, hard))
        self.wait(lambda: self.run.output.count("cannot be written") > count, "a full disk")
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)

    # --- what must be true ---

    def note_usage(self):
        """Launcher and workers have as many descriptors as ever in this place, once all that are gone are; and what memory they have."""
        expected = self.descriptors + DESCRIPTORS_PER_AGENT * len(self.members)
        launcher = self.run.process.pid
        self.wait(lambda: descriptors_of(launcher) == expected, f"{expected} descriptors of the launcher", step_by_step=False)
        self.memory.setdefault("launcher", []).append(memory_of(launcher))
        for rank, worker in enumerate(self.members):
            pid, place = self.pid(worker), (worker, rank, len(self.members))
            most = self.most_descriptors.setdefault(place, descriptors_of(pid) + 1)  # a checkpoint may be open, or not
            self.wait(lambda: descriptors_of(pid) <= most, f"{most} descriptors of worker {worker}", step_by_step=False)  # noqa: B023
            self.memory.setdefault(f"worker {worker}", []).append(memory_of(pid))

    def finish(self, **settings):
        """To the end of all epochs, undisturbed; then everything is looked at. Returns the batches of all steps."""
        self.allow(1 << 40)
        self.run.finish()
        batches = check_ledgers(self.folder, samples=self.samples, num_steps=3 * self.samples // 20)
        check_digests(self.folder)
        check_weights(self.folder, batches, width=WIDTH, samples=self.samples, **settings)
        for who, found in self.memory.items():
            assert found[-1] <= found[0] + MEMORY_GROWTH, f"memory of {who}: {found}"
        assert [*(self.folder / "tmp").glob("maypole*")] == [], "temporary files are left"
        assert [path for path in (self.folder / "kept").iterdir() if path.suffix != ".maypole"] == []
        left = subprocess.run(["pgrep", "-f", str(self.folder)], capture_output=True, text=True, check=False).stdout.split()
        assert left == [], "processes are left"
        return batches

    def iteration_s(self, steps):
        """What a step takes while nothing happens."""
        begin = self.newest() + 2
        self.allow(begin + steps)
        self.wait(lambda: self.newest() >= begin + steps, "undisturbed training", step_by_step=False)
        member = self.run.digests()[self.members[0]]
        times = [line["at"] for line in member if begin <= line["step"] < begin + steps]
        return (times[-1] - times[0]) / (len(times) - 1)

    def changes(self):
        """Of membership, so far."""
        return len(sizes(self.folder)) - 1
