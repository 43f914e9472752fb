# SPDX-License-Identifier: Apache-2.0
"""Faults and resizes, drawn from a seed, that happen to a run; and what must be true of it afterwards.

Nothing here waits for a time to pass: the run is given steps one by one, and each event is over when the run has shown what it has to.
"""

import collections
import contextlib
import ctypes
import json
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
SPARE_DESCRIPTORS = 4  # of a worker: a checkpoint may be open, and a ring makes some of its shared memory when it first needs it
MEMORY_GROWTH = 32 << 20  # of each process, from the first event to the last that it lives to see
WIDTH = 2048
DISK = 8 << 20  # for checkpoints, where this process may mount one: a few of them
CLONE_NEWNS = 0x20000
SMALL_FILE = 300_000  # bytes, where it may not: more than a ledger, less than a checkpoint


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def what_descriptors(pid):
    """What they lead to, and how many of each kind."""
    found = collections.Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found[os.readlink(f"/proc/{pid}/fd/{name}").split("[")[0]] += 1
    return dict(found)


def memory_of(pid):
    """What is not a file's: its own, and what it shares with its peers."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem")) << 10


def mount_disk(folder):
    """A disk of its own on `folder`, if that is allowed here. Only this process and its children see it: it goes when they do."""
    folder.mkdir()
    if os.geteuid() != 0 or ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
        return False
    commands = (["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", folder])
    return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in commands)


class Chaos:
    """One run of chaos_train.py between `least` and `most` workers."""

    def __init__(
        self, folder, seed, start=3, least=2, most=6, heartbeat="8s", replace=False, most_leave=1, samples=4000, update="replicated"
    ):
        self.folder, self.random, self.least, self.most = folder, random.Random(seed), least, most
        (folder / "tmp").mkdir()
        self.has_disk = mount_disk(folder / "kept")
        self.update = update
        self.run = ElasticRun(
            folder, workers=f"1:{most}", start=start, heartbeat=heartbeat, retries=10**6 if replace else 0, program="chaos_train.py",
            options=["--checkpoint-dir", folder / "kept", "--checkpoint-every", 5], width=WIDTH, samples=samples,
            temporary=folder / "tmp", update=update,
        )  # fmt: skip
        self.replace, self.most_leave, self.samples = replace, most_leave, samples
        self.members = list(range(start))  # as they must be when what has happened has had its effect
        self.started = start
        self.allowed = 0
        self.happened = []
        self.memory = {}
        self.most_descriptors = {}
        self.seen = {}  # worker -> (how far its digests are read, its steps: (number, time, workers))

    def __enter__(self):
        self.run.__enter__()
        self.settle()
        agents = DESCRIPTORS_PER_AGENT * len(self.members)
        self.descriptors = descriptors_of(self.run.process.pid) - agents  # of the launcher, beside its agents'
        return self

    def __exit__(self, *error):
        self.run.__exit__(*error)
        if self.has_disk:
            subprocess.run(["umount", self.folder / "kept"], check=True)

    # --- what the run shows ---

    def steps(self):
        """Of each worker that has begun one: its steps, as (number, time, workers). Reads what is new since the last time."""
        for worker in self.members:
            path = self.folder / f"digests-{worker}.jsonl"
            end, steps = self.seen.get(worker, (0, []))
            if path.exists() and path.stat().st_size > end:
                with path.open("rb") as file:
                    file.seek(end)
                    text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                lines = map(json.loads, whole.splitlines())
                self.seen[worker] = end + len(whole), steps + [(line["step"], line["at"], line["workers"]) for line in lines]
        return {worker: steps for worker, (_, steps) in self.seen.items() if steps}

    def newest(self):
        return max((steps[-1][0] for steps in self.steps().values()), default=0)

    def wait(self, condition, what, step_by_step=True):
        """Until condition() is true. step_by_step: whenever all wait for it, one more step may begin."""
        deadline = time.monotonic() + LIMIT_S
        moved = time.monotonic()
        while not (value := condition()):
            assert self.run.process.poll() is None, self.run.output[-3000:]
            if time.monotonic() > deadline:
                held = {worker: what_descriptors(self.pid(worker)) for worker in self.members}
                raise AssertionError(f"{what} did not come about after {self.happened}; descriptors {held}:\n{self.run.output[-3000:]}")
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
            steps = self.steps()
            last = [steps[worker][-1] for worker in self.members if worker in steps]
            return len(last) == len(self.members) and all(step >= goal and workers == len(last) for step, _, workers in last)

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
        if len(self.members) >= self.most:
            return self.shrink()
        asked = self.run.begin_resize(len(self.members) + 1)
        self.members += self.newcomers(1)
        self._effective(asked)

    def shrink(self):
        if len(self.members) <= self.least:
            return self.grow()
        count = self.random.randrange(1, min(self.most_leave, len(self.members) - self.least) + 1)
        asked = self.run.begin_resize(len(self.members) - count)
        del self.members[-count:]
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
        rings = self.run.output.count("maypole: epoch ")
        (self.folder / f"cut-{self.random.choice(self.members)}").touch()
        self.wait(lambda: self.run.output.count("maypole: epoch ") > rings, "another ring")

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
        without, again = (self.run.output.count(words) for words in ("cannot be written", "checkpoints are written again"))
        if self.has_disk:
            filler = self.folder / "kept" / "filler"
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            self.wait(lambda: self.run.output.count("cannot be written") > without, "a full disk")
            assert "No space left on device" in self.run.output
            filler.unlink()
        else:
            self.limit_files(lambda: self.wait(lambda: self.run.output.count("cannot be written") > without, "a full disk"))
        self.wait(lambda: self.run.output.count("checkpoints are written again") > again, "another checkpoint")

    def limit_files(self, during):
        limits = {self.pid(worker): resource.prlimit(self.pid(worker), resource.RLIMIT_FSIZE) for worker in self.members}
        for pid, (_, hard) in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (SMALL_FILE, hard))
        during()
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
            most = self.most_descriptors.setdefault(place, descriptors_of(pid) + SPARE_DESCRIPTORS)
            self.wait(lambda: descriptors_of(pid) <= most, f"{most} descriptors of worker {worker}", step_by_step=False)  # noqa: B023
            self.memory.setdefault(f"worker {worker}", []).append(memory_of(pid))

    def finish(self, **settings):
        """To the end of all epochs, undisturbed; then everything is looked at. Returns the batches of all steps."""
        self.allow(1 << 40)
        newest, moved = self.newest(), time.monotonic()
        while self.run.process.poll() is None and time.monotonic() - moved < LIMIT_S:
            time.sleep(0.1)
            if self.newest() > newest:
                newest, moved = self.newest(), time.monotonic()
        self.run.finish()
        batches = check_ledgers(self.folder, samples=self.samples, num_steps=3 * self.samples // 20)
        check_digests(self.folder, ("step",) if self.update == "replicated" else ("step", "epoch"))
        check_weights(self.folder, batches, width=WIDTH, samples=self.samples, **settings)
        for who, found in self.memory.items():
            assert found[-1] <= found[0] + MEMORY_GROWTH, f"memory of {who}: {found}"
        assert [*(self.folder / "tmp").glob("maypole*")] == [], "temporary files are left"
        assert [path for path in (self.folder / "kept").iterdir() if path.suffix != ".maypole"] == []
        left = subprocess.run(["pgrep", "-f", str(self.folder)], capture_output=True, text=True, check=False).stdout.split()
        assert left == [], "processes are left"
        assert self.run.name not in Path("/proc/net/unix").read_text(), "sockets are left"
        return batches

    def iteration_s(self, steps):
        """What a step takes while nothing happens."""
        begin = self.newest() + 2
        self.allow(begin + steps)
        self.wait(lambda: self.newest() >= begin + steps, "undisturbed training", step_by_step=False)
        times = [at for step, at, _ in self.steps()[self.members[0]] if begin <= step < begin + steps]
        return (times[-1] - times[0]) / (len(times) - 1)

    def changes(self):
        """Of membership, so far."""
        return len(sizes(self.folder)) - 1
