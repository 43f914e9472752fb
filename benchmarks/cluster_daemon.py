# SPDX-License-Identifier: Apache-2.0
"""A daemon under measurement: its commands, and its API over connections that stay open."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from pathlib import Path

from benchmarks.common import maypole_program

LIMIT_S = 240


class Daemon:
    """`maypole up` with a data directory in `folder`; ends, with all its jobs, at the end of the context."""

    def __init__(self, folder: Path, cluster: str = "", *options: str):
        self.folder, self.options = folder, list(options)
        self.data = folder / "data"
        self.environment = {**os.environ, "MAYPOLE_DATA_DIR": str(self.data)}
        for name in ("MAYPOLE_ADDRESS", "MAYPOLE_TOKEN"):
            self.environment.pop(name, None)
        if cluster:
            (folder / "cluster.yaml").write_text(cluster)
            self.options += ["--cluster", "cluster.yaml"]
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> Daemon:
        self.up()
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            self.run("down", "--stop-jobs")
            self.process.wait(LIMIT_S)

    def up(self) -> float:
        """Seconds from its start to its first answer."""
        began = time.monotonic()
        self.process = subprocess.Popen(
            [maypole_program(), "up", "--listen", "127.0.0.1:0", *self.options],
            env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = self.process.stdout.readline()
        if "listens on" not in line:
            raise RuntimeError("`maypole up` did not come up")
        host, port = (self.data / "address").read_text().strip().rsplit(":", 1)
        self.address = (host, int(port))
        self.token = (self.data / "token").read_text().strip()
        Client(self).call("GET", "/v1/cluster")
        return time.monotonic() - began

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [maypole_program(), *arguments], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S
        )
        if done.returncode:
            raise RuntimeError(f"`maypole {' '.join(arguments[:2])}` ended with {done.returncode}: {done.stderr[-1000:]}")
        return done.stdout

    def command_s(self, *arguments: str) -> float:
        began = time.monotonic()
        self.run(*arguments)
        return time.monotonic() - began

    def submit(self, command: list[str], **fields) -> str:
        return Client(self).submit(command, str(self.folder), **fields)

    def job(self, job: str) -> dict:
        return Client(self).call("GET", f"/v1/jobs/{job}")

    def wait_for(self, job: str, states: tuple[str, ...] = ("finished", "failed", "cancelled")) -> dict:
        deadline = time.monotonic() + LIMIT_S
        while (found := self.job(job))["state"] not in states:
            if time.monotonic() > deadline:
                raise RuntimeError(f"job {job} is {found['state']} after {LIMIT_S} s, not {states}")
            time.sleep(0.02)
        return found

    def output(self, job: str) -> str:
        return self.run("logs", job)


class Client:
    """One open connection."""

    def __init__(self, daemon: Daemon):
        self.headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/json"}
        self.connection = http.client.HTTPConnection(*daemon.address, timeout=LIMIT_S)

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        self.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
        return json.loads(text)

    def submit(self, command: list[str], folder: str, **fields) -> str:
        return self.call("POST", "/v1/jobs", {"version": 1, "command": command, "chdir": folder, **fields})["id"]
