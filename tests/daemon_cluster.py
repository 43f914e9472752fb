# SPDX-License-Identifier: Apache-2.0
"""A daemon under test, its commands, and what it has started."""

import contextlib
import json
import os
import sqlite3
import subprocess
from pathlib import Path

from running import LIMIT_S, PROGRAM, until


class Cluster:
    """A daemon in a folder of its own, and its commands."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.data = folder / "data"
        self.environment = {**os.environ, "MAYPOLE_DATA_DIR": str(self.data)}
        for name in ("MAYPOLE_ADDRESS", "MAYPOLE_TOKEN"):
            self.environment.pop(name, None)
        self.daemon = None
        self.options: tuple = ()  # of every `up`

    def up(self, *options: str) -> str:
        self.daemon = subprocess.Popen(
            [PROGRAM, "up", "--listen", "127.0.0.1:0", *self.options, *options],
            env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self.daemon.stdout.readline()

    def kill(self) -> None:
        self.daemon.kill()
        self.daemon.communicate()

    def call(self, *arguments: str, **options) -> subprocess.CompletedProcess:
        environment = {**self.environment, **options.pop("env", {})}
        return subprocess.run(
            [PROGRAM, *arguments], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S, **options
        )

    def ok(self, *arguments: str) -> str:
        done = self.call(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *arguments: str) -> str:
        return self.ok("submit", *arguments).strip()

    def identity(self) -> str:
        with contextlib.closing(sqlite3.connect(self.data / "store.db")) as store:
            return store.execute("select identity from store").fetchone()[0]

    def job(self, job: str) -> dict:
        return json.loads(self.ok("show", "--json", job))

    def until_state(self, job: str, state: str) -> dict:
        return until(lambda: (found := self.job(job))["state"] == state and found, f"state {state} of job {job}")


def start_ticks(pid: int) -> int | None:
    """When a process began, which tells it from a later one of its number; None where it is gone or dead."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return None if words[0] == "Z" else int(words[19])
    except OSError:
        return None


def marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def cluster_groups(cluster: Cluster) -> list[Path]:
    """The control groups of its workers that are still there."""
    return list(Path("/sys/fs/cgroup").rglob(f"maypole-{cluster.identity()}-*"))


def ended(pid: str) -> bool:
    """Gone, or dead and not yet collected by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def makes_groups() -> bool:
    """Whether a daemon that is started here can give each worker a control group of its own."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    return bool(mounts and own) and os.access(f"{mounts[0][4]}{own[0]}", os.W_OK)


def say(text: str) -> list[str]:
    return ["--", "sh", "-c", text]
