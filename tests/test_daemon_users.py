# SPDX-License-Identifier: Apache-2.0
"""`maypole up` as people use it and as it is used wrongly: what a row of the issue trackers of other schedulers asks for."""

import fcntl
import json
import os
import pty
import select
import signal
import sqlite3
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from daemon_cluster import Cluster, say
from running import LIMIT_S, PROGRAM, until


def servers(folder: Path, *cpus: int, racks: list[str] | None = None) -> str:
    """A cluster file of servers s0, s1, ... with so many cpus each."""
    lines = ["version: 1", "servers:"]
    for i, count in enumerate(cpus):
        rack = f", rack: {racks[i]}" if racks else ""
        lines.append(f"  - {{id: s{i}{rack}, capacity: {{cpu: {count}}}}}")
    for rack in sorted(set(racks or [])):
        lines += ["racks:"] * (rack == min(racks)) + [f"  - {{id: {rack}, uplink: 10Gbps}}"]
    path = folder / "cluster.yaml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def reason(cluster: Cluster, job: str, words: str) -> str:
    return until(lambda: (found := cluster.job(job)["reason"]) and words in found and found, f"the reason '{words}' of job {job}")


def test_a_drained_server_takes_no_job_until_it_is_a_member_again(cluster):
    cluster.up("--cluster", servers(cluster.folder, 2, 2))
    assert "drained by owner" in cluster.ok("drain", "s1")
    first = cluster.submit("--workers", "2", *say("sleep 1000"))
    assert cluster.until_state(first, "running")["servers"] == ["s0"]
    wide = cluster.submit("--workers", "3", *say("true"))
    assert reason(cluster, wide, "s1 is drained") in cluster.ok("queue")
    second = cluster.submit("--workers", "1", *say("true"))
    cluster.ok("cancel", first)
    assert cluster.call("wait", second).returncode == 0
    cluster.kill()
    cluster.up("--cluster", servers(cluster.folder, 2, 2))
    assert "s1: 0 of 2 cpu taken; drained by owner" in cluster.ok("cluster")
    assert cluster.job(wide)["state"] == "queued"
    assert "drained" not in cluster.ok("undrain", "s1")
    assert cluster.call("wait", wide).returncode == 0
    wrong = cluster.call("drain", "s11")
    assert (wrong.returncode, "did you mean 's1'?" in wrong.stderr) == (2, True)


def test_a_node_that_leaves_and_returns_is_a_member_again(cluster):
    cluster.up("--cluster", servers(cluster.folder, 1, 1))
    job = cluster.submit("--workers", "2", *say("echo $MAYPOLE_HOST; sleep 1000"))
    cluster.until_state(job, "running")
    cluster.ok("down", "--leave-jobs")
    cluster.daemon.wait(LIMIT_S)
    refused = cluster.call("up", "--listen", "127.0.0.1:0", "--cluster", servers(cluster.folder, 1))
    assert refused.returncode == 1 and f"job {job} runs" in refused.stderr and "drain" in refused.stderr
    cluster.up("--cluster", servers(cluster.folder, 1, 1))
    cluster.ok("drain", "s1")
    cluster.ok("cancel", job)
    cluster.call("wait", job)
    waiting = cluster.submit("--workers", "2", *say("true"))
    cluster.ok("down")
    cluster.daemon.wait(LIMIT_S)
    cluster.up("--cluster", servers(cluster.folder, 1))
    assert "the empty cluster holds 1" in cluster.job(waiting)["reason"]
    cluster.ok("down")
    cluster.daemon.wait(LIMIT_S)
    cluster.up("--cluster", servers(cluster.folder, 1, 1))
    assert "s1 is drained" in cluster.job(waiting)["reason"], "it is remembered, too"
    cluster.ok("undrain", "s1")
    assert cluster.call("wait", waiting).returncode == 0


def test_an_impossible_request_is_refused_with_both_numbers_or_waits_for_a_cluster_that_grows(cluster):
    cluster.up("--cluster", servers(cluster.folder, 2, 1, racks=["r0", "r1"]))
    for workers, cpus, words in (("4", "1", ["at least 4 workers", "holds 3"]), ("1", "3", ["needs 3 cpu", "has 2"])):
        refused = cluster.call("submit", "--workers", workers, "--cpus", cpus, *say("true"))
        assert refused.returncode == 2
        assert all(word in refused.stderr for word in words), refused.stderr
    refused = cluster.call("submit", "--workers", "3", "--bandwidth", "90Gbps", *say("true"))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "at least 3 workers, and servers joined by links of" in refused.stderr and "hold 2" in refused.stderr
    job = cluster.submit("--workers", "4", "--allow-wait", *say("true"))
    assert "waits for a larger cluster: it needs at least 4 workers" in cluster.job(job)["reason"]
    small = cluster.submit(*say("true"))
    assert cluster.call("wait", small).returncode == 0, "it holds nobody up"
    cluster.ok("down")
    cluster.daemon.wait(LIMIT_S)
    cluster.up("--cluster", servers(cluster.folder, 2, 1, 1))
    assert cluster.call("wait", job).returncode == 0


def test_ended_jobs_go_with_their_folders_and_no_number_comes_twice(cluster):
    cluster.up("--keep-ended", "2")
    jobs = [cluster.submit(*say("echo hello")) for _ in range(4)]
    for job in jobs:
        assert cluster.call("wait", job).returncode == 0
    cluster.ok("down")
    cluster.daemon.wait(LIMIT_S)
    cluster.up("--keep-ended", "2")
    until(lambda: [row["id"] for row in json.loads(cluster.ok("queue", "--all", "--json"))["jobs"]] == jobs[2:], "that two are left")
    until(lambda: sorted(path.name for path in (cluster.data / "jobs").iterdir()) == jobs[2:], "that two folders are left")
    assert cluster.ok("logs", jobs[3]) == "hello\n"
    cluster.ok("down")
    cluster.daemon.wait(LIMIT_S)
    cluster.up("--keep-ended", "0")
    assert until(lambda: cluster.call("show", jobs[2]).returncode == 2, "that one is left")
    assert cluster.submit(*say("true")) == "5"
    cluster.ok("wait", "5")
    wrong = cluster.call("up", "--keep-ended", "never")
    assert (wrong.returncode, "--keep-ended: 'never'" in wrong.stderr) == (2, True)


def test_a_store_of_the_first_version_is_taken_over(cluster):
    cluster.up()
    job = cluster.submit(*say("exit 3"))
    cluster.call("wait", job)
    cluster.ok("down")
    cluster.daemon.wait(LIMIT_S)
    store = sqlite3.connect(cluster.data / "store.db")
    added = "".join(f"ALTER TABLE jobs DROP COLUMN {name};" for name in ("leaving", "ring_order", "resizes"))
    store.executescript(f"DROP TABLE closed_servers; {added} PRAGMA user_version = 1;")
    store.close()
    cluster.up()
    assert cluster.job(job)["exit_code"] == 3
    server = json.loads(cluster.ok("cluster", "--json"))["servers"][0]["id"]
    cluster.ok("drain", server)


class Screen:
    """A program on a terminal of 80 by 24, and what it has drawn there last."""

    def __init__(self, cluster: Cluster, *arguments: str):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(cluster.environment)
            os.execv(PROGRAM, [str(PROGRAM), *arguments])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.text = ""

    def read(self) -> str:
        while select.select([self.terminal], [], [], 0.1)[0]:
            try:
                self.text += os.read(self.terminal, 65536).decode()
            except OSError:
                break
        return self.text.rpartition("\x1b[H")[2]

    def until(self, words: str) -> None:
        until(lambda: words in self.read(), f"'{words}' on the screen")

    def end(self) -> int:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.terminal)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("it did not end")


def test_top_shows_the_cluster_survives_the_daemons_restart_and_gives_the_terminal_back(cluster):
    file = servers(cluster.folder, 1, 1)
    cluster.up("--cluster", file)
    cluster.submit("--name", "holder", "--workers", "2", *say("sleep 1000"))
    cluster.submit("--name", "\x1b[2Jwaiter", *say("sleep 1000"))
    cluster.until_state("holder", "running")
    screen = Screen(cluster, "top", "--every", "0.1s")
    screen.until("holder")
    frame = screen.read()
    assert "?[2Jwaiter" in frame, "a name does not move the cursor"
    assert "2 servers: 2 of 2 cpu taken" in frame and "1 running, 1 queued" in frame
    cluster.kill()
    screen.until("no daemon answers")
    assert "holder" in screen.read(), "the last state stays in sight"
    cluster.up("--cluster", file)
    until(lambda: "no daemon" not in screen.read(), "the daemon on the screen")
    os.write(screen.terminal, b"q")
    assert screen.end() == 0
    assert screen.text.endswith("\x1b[?25h\x1b[?1049l"), "the cursor is back"
    interrupted = Screen(cluster, "top")
    interrupted.until("holder")
    os.kill(interrupted.pid, signal.SIGINT)
    assert interrupted.end() == 0
    assert interrupted.text.endswith("\x1b[?25h\x1b[?1049l")
    for job in ("1", "2"):
        cluster.ok("cancel", job)


def test_top_prints_plain_frames_where_output_is_no_terminal(cluster):
    cluster.up("--cluster", servers(cluster.folder, *[1] * 40))
    for _ in range(10):
        cluster.submit(*say("sleep 1000"))
    once = cluster.ok("top", "--once")
    assert "\x1b" not in once
    assert len(once.splitlines()) <= 24 and max(len(line) for line in once.splitlines()) <= 80
    assert "more servers" in once
    answer = json.loads(cluster.ok("top", "--json"))
    assert len(answer["cluster"]["servers"]) == 40
    watching = subprocess.Popen([PROGRAM, "top", "--every", "0.1s"], env=cluster.environment, stdout=subprocess.PIPE, text=True)
    heads = [line for line in (watching.stdout.readline() for _ in range(60)) if line.startswith("maypole")]
    watching.kill()
    watching.communicate()
    assert len(heads) >= 2
    for job in range(1, 11):
        cluster.call("cancel", str(job))


def completed(cluster: Cluster, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = cluster.ok("completion", "bash") + (
        'compopt() { echo "files"; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _maypole; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script, "bash", str(PROGRAM), *words], env=cluster.environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_the_tab_key_completes_commands_options_jobs_and_servers(cluster):
    cluster.up("--cluster", servers(cluster.folder, 1, 1))
    cluster.submit("--name", "digits", *say("sleep 1000"))
    cluster.submit("--name", "$(touch bad)", *say("sleep 1000"))
    assert completed(cluster, "und") == ["undrain"]
    assert completed(cluster, "submit", "--wor") == ["--workers"]
    assert completed(cluster, "token", "create", "--ro") == ["--role"]
    assert completed(cluster, "cancel", "dig") == ["digits"]
    assert completed(cluster, "logs", "-f", "") == ["1", "2", "digits"]
    assert completed(cluster, "drain", "s") == ["s0", "s1"]
    assert completed(cluster, "submit", "--", "py") == ["files"]
    assert completed(cluster, "simulate", "x") == ["files"]
    assert completed(cluster, "show", "--data-dir", "/nonexistent", "dig") == []


@pytest.mark.parametrize(("arguments", "words"), [
    (["top", "--every", "soon"], "--every: 'soon'"),
    (["drain"], "server is required"),
    (["submit", "--wrokers=2", "--", "true"], "did you mean '--workers'?"),
    (["token", "craete", "ann"], "did you mean 'create'?"),
    (["queue", "--jsno"], "did you mean '--json'?"),
])  # fmt: skip
def test_wrong_use_of_watching_is_one_line(cluster, arguments, words):
    cluster.up()
    done = cluster.call(*arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert words in done.stderr


# Rows of the table of situations; those that other files hold are named there.


def sleeping(cluster: Cluster, *options: str) -> str:
    job = cluster.submit(*options, *say("sleep 1000"))
    cluster.until_state(job, "running")
    return job


def held(cluster: Cluster) -> list[float]:
    return [server["held"]["cpu"] for server in json.loads(cluster.ok("cluster", "--json"))["servers"]]


def crossings(ring: list[str], rack_of: dict[str, str]) -> int:
    racks = [rack_of[server] for server in ring]
    return sum(racks[i] != racks[i - 1] for i in range(len(racks)))


def test_of_two_gangs_one_waits_as_a_whole(cluster):
    cluster.up("--cluster", servers(cluster.folder, 2, 2))
    first, second = (cluster.submit("--workers", "3", *say("sleep 1000")) for _ in range(2))
    until(lambda: {cluster.job(first)["state"], cluster.job(second)["state"]} == {"running", "queued"}, "that one of them runs")
    assert sum(held(cluster)) == 3, "the other holds nothing"
    running, waiting = sorted((first, second), key=lambda job: cluster.job(job)["state"], reverse=True)
    cluster.ok("cancel", running)
    assert cluster.until_state(waiting, "running")["workers"] == 3


def test_enough_in_sum_but_not_in_shape_waits_without_blocking_one_that_fits(cluster):
    cluster.up("--cluster", servers(cluster.folder, 8, 8, 8))
    for server in ("s0", "s1"):  # leaves 7, 7 and 8
        others = {"s0", "s1", "s2"} - {server}
        for other in others:
            cluster.ok("drain", other)
        assert cluster.job(sleeping(cluster))["servers"] == [server]
        for other in others:
            cluster.ok("undrain", other)
    assert held(cluster) == [1, 1, 0]
    wide = cluster.submit("--workers", "2", "--cpus", "8", *say("true"))
    assert cluster.job(sleeping(cluster, "--cpus", "8"))["servers"] == ["s2"]
    assert cluster.job(wide)["state"] == "queued"


def test_a_resource_or_field_that_nobody_knows_is_refused_by_its_name(cluster):
    cluster.up()
    for field, words in (("per_worker: {tpu: 1}", ["per_worker", "tpu"]), ("wrokers: 2", ["wrokers", "workers"])):
        (cluster.folder / "job.yaml").write_text(f"version: 1\ncommand: ['true']\n{field}\n")
        refused = cluster.call("submit", "job.yaml")
        assert refused.returncode == 2
        assert all(word in refused.stderr for word in words), refused.stderr
    assert json.loads(cluster.ok("queue", "--all", "--json"))["jobs"] == []


def test_jobs_submitted_at_once_never_get_the_same_gpus(cluster):
    lines = [f"  - {{id: {server}, capacity: {{cpu: 8, gpu: 4}}}}" for server in ("s0", "s1")]
    (cluster.folder / "gpus.yaml").write_text("\n".join(["version: 1", "servers:", *lines]) + "\n")
    cluster.up("--cluster", "gpus.yaml")
    script = "echo $CUDA_VISIBLE_DEVICES > gpus-$MAYPOLE_JOB_ID-$RANK; sleep 1000"
    options = {"env": cluster.environment, "cwd": cluster.folder, "stdout": subprocess.DEVNULL}
    submits = [subprocess.Popen([PROGRAM, "submit", "--gpus", "2", *say(script)], **options) for _ in range(4)]
    assert [submit.wait(LIMIT_S) for submit in submits] == [0] * 4

    def texts() -> list[str]:
        found = [file.read_text() for file in cluster.folder.glob("gpus-*")]
        return found if len(found) == 4 and all(found) else []

    written = until(texts, "what the jobs write")
    given = [gpu for text in written for gpu in text.strip().split(",")]
    assert sorted(given) == [str(i) for i in range(8)]


def test_a_ring_crosses_between_racks_as_seldom_as_can_be_and_always_in_the_same_way(cluster):
    racks = [f"r{i // 4}" for i in range(12)]
    rack_of = {f"s{i}": rack for i, rack in enumerate(racks)}
    file = Path(servers(cluster.folder, *[1] * 12, racks=racks))
    rings = []
    for _ in range(2):
        cluster.up("--cluster", str(file))
        ten = sleeping(cluster, "--workers", "10")
        rings.append(cluster.job(ten)["ring"])
        assert " -> ".join(rings[-1]) in cluster.ok("show", ten)
        cluster.ok("cancel", ten)
        cluster.call("wait", ten)
        five = sleeping(cluster, "--workers", "5")
        assert crossings(cluster.job(five)["ring"], rack_of) == 2
        cluster.ok("down", "--stop-jobs")
        cluster.daemon.wait(LIMIT_S)
        lines = file.read_text().splitlines()  # the same cluster, its servers written in another order
        file.write_text("\n".join(lines[:2] + lines[13:1:-1] + lines[14:]) + "\n")
    assert crossings(rings[0], rack_of) == 3
    assert rings[0] == rings[1]


def test_a_killed_worker_ends_its_job_and_its_peers_do_not_wait_for_it(cluster):
    cluster.up()
    job = cluster.submit("--workers", "2", *say("echo $$ > pid-$RANK; sleep 1000"))
    pid = int(until(lambda: (cluster.folder / "pid-1").exists() and (cluster.folder / "pid-1").read_text(), "the worker"))
    cluster.until_state(job, "running")
    os.kill(pid, signal.SIGKILL)
    waited = cluster.call("wait", job)
    assert waited.returncode == 128 + signal.SIGKILL
    assert "rank 1 was killed by signal 9" in waited.stderr
    assert held(cluster) == [0]


def test_a_launch_that_fails_leaks_nothing(cluster):
    cluster.up("--cluster", servers(cluster.folder, 1))
    for _ in range(3):
        assert cluster.call("wait", cluster.submit("--", "/nonexistent/program")).returncode != 0
    assert held(cluster) == [0]
    assert cluster.call("wait", cluster.submit(*say("exit 5"))).returncode == 5
