# SPDX-License-Identifier: Apache-2.0
"""The short form of daemon_chaos.py, with fixed seeds; the long one is a part of `make bench-cluster`."""

import os
import subprocess

import pytest
from daemon_chaos import FAULTS, FULL_DISK, end, run_chaos, small_disk
from daemon_cluster import Cluster
from running import need_program

JOBS = 12
SERVERS = "version: 1\nservers:\n" + "".join(f"  - {{id: s{i}, capacity: {{cpu: 3}}}}\n" for i in range(3))


@pytest.fixture
def cluster(tmp_path):
    need_program()
    cluster = Cluster(tmp_path)
    yield cluster
    end(cluster)


def test_a_dozen_jobs_end_or_say_why_whatever_is_killed_or_stopped(cluster):
    run_chaos(cluster, 1, FAULTS, 24, JOBS, SERVERS)


def test_a_dozen_jobs_end_or_say_why_when_the_disk_is_full_now_and_then(cluster):
    if os.geteuid() != 0:
        pytest.skip("a small disk is mounted, which needs root")
    with small_disk(cluster.data) as mounted:
        if not mounted:
            pytest.skip("this machine mounts no tmpfs")
        run_chaos(cluster, 2, FAULTS + FULL_DISK, 22, JOBS, SERVERS)
        end(cluster)
        subprocess.run(["umount", cluster.data], check=True)  # fails where anything still has a file open there
