# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that start jobs."""

import os
import subprocess
import time

import pytest
from daemon_cluster import Cluster, cluster_groups, marked
from running import LIMIT_S, marked_processes, need_program


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of its own, as working directory and as TMPDIR, so that what a run leaves behind is seen."""
    need_program()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("MAYPOLE_TUNING_CACHE", "off")
    monkeypatch.setenv("MAYPOLE_TEST_MARK", f"mark-{os.getpid()}-{time.monotonic_ns()}")
    yield tmp_path
    assert list(temporary.iterdir()) == []
    assert marked_processes() == []


@pytest.fixture
def cluster(tmp_path):
    """A daemon that a test brings up, in a folder of its own, and of whose workers nothing may be left."""
    need_program()
    cluster = Cluster(tmp_path)
    yield cluster
    if cluster.daemon is not None and cluster.daemon.poll() is None:
        stopped = cluster.call("down", "--stop-jobs")
        assert stopped.returncode == 0, stopped.stderr
        assert cluster.daemon.wait(LIMIT_S) == 0
    assert marked(f"MAYPOLE_WORKER={cluster.identity()}/") == [], "nothing of the workers is left"
    assert cluster_groups(cluster) == []


@pytest.fixture
def two_namespaces():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    names = [f"mrun{os.getpid()}a", f"mrun{os.getpid()}b"]
    commands = [f"ip netns add {name}" for name in names] + [f"ip -n {name} link set lo up" for name in names]
    commands += [f"ip link add eth0 netns {names[0]} type veth peer name eth0 netns {names[1]}"]
    for name, address in zip(names, ("10.78.0.1", "10.78.0.2"), strict=True):
        commands += [f"ip -n {name} addr add {address}/24 dev eth0", f"ip -n {name} link set eth0 up"]
    try:
        for command in commands:
            if subprocess.run(command.split(), capture_output=True).returncode != 0:
                pytest.skip(f"this machine cannot `{command}`")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
