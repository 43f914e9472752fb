# SPDX-License-Identifier: Apache-2.0
"""`maypole up` and its commands, with real jobs: what a user sees, and that nothing is lost or doubled when the daemon is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from daemon_cluster import Cluster, cluster_groups, ended, makes_groups, say
from running import LIMIT_S, NSENTER, PROGRAM, until


def test_a_job_runs_from_submit_to_its_exit_code(cluster):
    assert "listens on 127.0.0.1:" in cluster.up()
    job = cluster.submit("--name", "hello", "--workers", "2", *say("echo rank $RANK of $WORLD_SIZE on $MAYPOLE_HOST; exit $RANK"))
    waited = cluster.call("wait", "hello")
    assert waited.returncode == 1
    assert "rank 1 ended with exit code 1" in waited.stderr
    host = os.uname().nodename
    assert sorted(cluster.ok("logs", job).splitlines()) == [f"[0] rank 0 of 2 on {host}", f"[1] rank 1 of 2 on {host}"]
    found = cluster.job("hello")
    assert (found["id"], found["state"], found["exit_code"], found["owner"]) == (job, "failed", 1, "owner")
    assert job not in cluster.ok("queue")
    assert [row["id"] for row in json.loads(cluster.ok("queue", "--all", "--json"))["jobs"]] == [job]


def test_submit_prints_the_id_as_json_and_takes_a_file_with_options_over_it(cluster):
    cluster.up()
    (cluster.folder / "sub").mkdir()
    (cluster.folder / "sub" / "job.yaml").write_text(
        "version: 1\nname: from-file\ncommand: [sh, -c, 'pwd; echo $A $B; exit 4']\nworkers: 1\nenv: {A: '1', B: x}\n"
    )
    job = json.loads(cluster.ok("submit", "--json", "--env", "B=over", "sub/job.yaml"))["id"]
    assert cluster.call("wait", job).returncode == 4
    assert cluster.ok("logs", job).splitlines() == [str(cluster.folder / "sub"), "1 over"]
    assert cluster.job(job)["name"] == "from-file"


def test_workers_outlive_a_killed_daemon_and_are_found_again(cluster):
    cluster.up()
    job = cluster.submit(*say("echo begun >> starts; while [ ! -e go ]; do sleep 0.02; done; echo ended; exit 7"))
    until(lambda: (cluster.folder / "starts").exists(), "the worker's start")
    cluster.until_state(job, "running")
    cluster.kill()
    cluster.up()
    assert cluster.job(job)["state"] == "running"
    (cluster.folder / "go").touch()
    assert cluster.call("wait", job).returncode == 7
    assert (cluster.folder / "starts").read_text() == "begun\n", "started once"
    assert cluster.ok("logs", job) == "ended\n"


def test_how_a_worker_ended_while_the_daemon_was_away_is_known(cluster):
    cluster.up()
    job = cluster.submit(*say("touch begun; while [ ! -e go ]; do sleep 0.02; done; echo ended; exit 9"))
    until(lambda: (cluster.folder / "begun").exists(), "the worker's start")
    cluster.kill()
    (cluster.folder / "go").touch()
    exits = until(lambda: list(cluster.data.glob(f"jobs/{job}/1/0/exit")), "the worker's end")
    assert exits
    cluster.up()
    assert cluster.call("wait", job).returncode == 9


def test_a_daemon_killed_at_any_moment_starts_every_job_once_and_loses_none(cluster):
    cluster.up()
    jobs = []
    # Each job proves by an exclusive file that its epoch is the only one that ever ran to the end.
    script = "set -C; echo x > one-$MAYPOLE_JOB_ID || exit 99; exit 0"
    for round_number in range(6):
        for _ in range(3):
            jobs.append(cluster.submit(*say(script)))
        time.sleep(0.03 * round_number)  # kills fall into different steps of starting; none of them may matter
        cluster.kill()
        cluster.up()
    for job in jobs:
        assert cluster.call("wait", job).returncode == 0, cluster.job(job)
    assert len(jobs) == len(set(jobs)) == 18


def test_cancel_ends_the_whole_process_group_and_gives_its_cores_to_the_next(cluster):
    (cluster.folder / "cluster.yaml").write_text("version: 1\nservers:\n  - {id: s0, capacity: {cpu: 1}}\n")
    cluster.up("--cluster", "cluster.yaml")
    # A child in a session of its own, which ignores SIGTERM.
    stubborn = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 0.1; done' & wait; sleep 1000"
    first = cluster.submit(*say(stubborn))
    child = until(lambda: (cluster.folder / "child").exists() and (cluster.folder / "child").read_text().strip(), "the child")
    second = cluster.submit(*say(f"test ! -d /proc/{child} || grep -q ') Z' /proc/{child}/stat"))
    assert cluster.job(second)["state"] == "queued"
    cluster.ok("cancel", first)
    assert cluster.call("wait", first).returncode == 130
    assert cluster.call("wait", second).returncode == 0, "the child was gone when it started"


def test_a_killed_shim_takes_its_worker_along_and_the_job_is_retried(cluster):
    cluster.up()
    script = "if [ -e again ]; then exit 0; fi; touch again; sleep 1000 & echo $! > child; wait"
    job = cluster.submit("--retries", "1", *say(script))
    child = until(lambda: (cluster.folder / "child").exists() and (cluster.folder / "child").read_text().strip(), "the child")
    shim = int((cluster.data / "jobs" / job / "1" / "0" / "claim").read_text().split()[0])
    os.kill(shim, signal.SIGKILL)
    assert cluster.call("wait", job).returncode == 0
    assert ended(child)
    assert cluster.job(job)["retries"] == 1


def test_a_killed_shim_takes_along_what_changed_its_session_and_its_environment(cluster):
    if not makes_groups():
        pytest.skip("this user makes no control groups here")
    cluster.up()
    # The child holds nothing of its parent's that a daemon without control groups could know it by.
    job = cluster.submit(*say("setsid env -i sh -c 'echo $$ > child; sleep 1000' & wait"))
    child = until(lambda: (cluster.folder / "child").exists() and (cluster.folder / "child").read_text().strip(), "the child")
    shim = int((cluster.data / "jobs" / job / "1" / "0" / "claim").read_text().split()[0])
    os.kill(shim, signal.SIGKILL)
    assert cluster.call("wait", job).returncode == 128 + signal.SIGKILL
    assert ended(child)
    assert cluster_groups(cluster) == []


def test_down_refuses_while_a_job_runs_and_may_leave_it(cluster):
    cluster.up()
    job = cluster.submit(*say("touch begun; while [ ! -e go ]; do sleep 0.02; done"))
    until(lambda: (cluster.folder / "begun").exists(), "the worker's start")
    refused = cluster.call("down")
    assert refused.returncode == 1
    assert "--stop-jobs" in refused.stderr and "--leave-jobs" in refused.stderr
    cluster.ok("down", "--leave-jobs")
    assert cluster.daemon.wait(LIMIT_S) == 0
    cluster.up()
    (cluster.folder / "go").touch()
    assert cluster.call("wait", job).returncode == 0


RING = (
    "import torch\nimport maypole.torch as maypole\nmaypole.init()\n"
    "t = maypole.all_reduce(torch.full((1000,), float(maypole.rank() + 1)), op='sum')\n"
    "print('sum', int(t[0]), 'size', maypole.size())\n"
)


def test_a_ring_of_workers_trains_under_the_daemon(cluster):
    pytest.importorskip("torch")
    (cluster.folder / "train.py").write_text(RING)
    cluster.up()
    job = cluster.submit("--workers", "2", "--bandwidth", "1Gbps", "--", sys.executable, "train.py")
    waited = cluster.call("wait", job)
    assert waited.returncode == 0, waited.stderr + cluster.ok("logs", job)
    assert sorted(cluster.ok("logs", job).splitlines()) == ["[0] sum 3 size 2", "[1] sum 3 size 2"]


def two_servers(names: list[str], launcher: str) -> str:
    """The ids of servers are names of network namespaces."""
    return "version: 1\nservers:\n" + "".join(f"  - {{id: {name}, capacity: {{cpu: 2}}, launcher: '{launcher}'}}\n" for name in names)


def test_workers_of_servers_with_a_launcher_start_and_meet_there(cluster, two_namespaces):
    (cluster.folder / "cluster.yaml").write_text(two_servers(two_namespaces, NSENTER))
    cluster.up("--cluster", "cluster.yaml")
    inside = "cat /proc/net/dev | tr -d ' ' | grep -c ^eth0:; readlink /proc/self/ns/net; echo $MAYPOLE_RENDEZVOUS $MASTER_ADDR; exit $RANK"
    job = cluster.submit("--workers", "3", *say(inside))
    assert cluster.call("wait", job).returncode in (1, 2)
    lines = cluster.ok("logs", job).splitlines()
    networks = {line.split()[0]: line.split()[1] for line in lines if "net:" in line}
    places = set(networks.values())
    assert len(places) == 2 and os.readlink("/proc/self/ns/net") not in places
    met = {tuple(line.split()[1:]) for line in lines if line.split()[-1].startswith("10.78.0.")}
    assert len(met) == 1, "all are told the same address, which is one of the namespaces' own"
    ((rendezvous, master),) = met
    assert rendezvous.startswith(f"{master}:")


def test_a_ring_trains_across_namespaces_and_goes_on_without_the_daemon(cluster, two_namespaces):
    pytest.importorskip("torch")
    (cluster.folder / "cluster.yaml").write_text(two_servers(two_namespaces, NSENTER))
    (cluster.folder / "train.py").write_text(
        "import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.02)\n" + RING
    )
    cluster.up("--cluster", "cluster.yaml")
    job = cluster.submit("--workers", "4", "--", sys.executable, "train.py")
    until(lambda: (cluster.folder / "begun").exists(), "a worker's start")
    cluster.until_state(job, "running")
    cluster.kill()
    cluster.up("--cluster", "cluster.yaml")
    (cluster.folder / "go").touch()
    waited = cluster.call("wait", job)
    assert waited.returncode == 0, waited.stderr + cluster.ok("logs", job)
    assert sorted(cluster.ok("logs", job).splitlines()) == [f"[{rank}] sum 10 size 4" for rank in range(4)]


def test_the_shim_is_watched_and_not_the_launcher_that_stays_beside_it(cluster):
    (cluster.folder / "cluster.yaml").write_text(two_servers(["a"], 'sh -c "{command}; true"'))
    cluster.up("--cluster", "cluster.yaml")
    job = cluster.submit(*say("touch begun; while [ ! -e go ]; do sleep 0.02; done; exit 5"))
    until(lambda: (cluster.folder / "begun").exists(), "the worker's start")
    cluster.until_state(job, "running")
    (cluster.folder / "go").touch()
    assert cluster.call("wait", job).returncode == 5
    again = cluster.submit(*say("sleep 1000"))
    cluster.until_state(again, "running")
    cluster.ok("cancel", again)
    assert cluster.call("wait", again).returncode == 130


@pytest.mark.parametrize(
    ("launcher", "word"),
    [
        ("nsenter --net=/run/netns/no-such-{host} {command}", "no-such-a"),
        ("sh -c 'echo only so >&2; exit 3' {command}", "only so"),
        ("no-such-program {command}", "no-such-program"),
    ],
)
def test_a_launcher_that_starts_nothing_gives_the_job_its_reason(cluster, launcher, word):
    (cluster.folder / "cluster.yaml").write_text(two_servers(["a"], launcher.replace("'", "''")))
    cluster.up("--cluster", "cluster.yaml")
    waited = cluster.call("wait", cluster.submit(*say("true")))
    assert waited.returncode == 1
    assert word in waited.stderr


def test_a_launcher_that_names_no_command_is_refused(cluster):
    (cluster.folder / "cluster.yaml").write_text(two_servers(["a"], "ssh {host}"))
    assert cluster.up("--cluster", "cluster.yaml") == ""
    _, errors = cluster.daemon.communicate()
    assert cluster.daemon.returncode == 2 and "{command}" in errors and len(errors.splitlines()) == 1
    cluster.up()


def test_workers_of_servers_that_divide_the_machine_run_on_cores_of_their_own(cluster):
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        pytest.skip("this machine has one core")
    servers = "  - {id: s0, capacity: {cpu: 1}}\n  - {id: s1, capacity: {cpu: 1}}\n"
    (cluster.folder / "cluster.yaml").write_text("version: 1\nservers:\n" + servers)
    cluster.up("--cluster", "cluster.yaml")
    job = cluster.submit("--workers", "2", *say("grep Cpus_allowed_list /proc/self/status; while [ ! -e go ]; do sleep 0.02; done"))
    until(lambda: cluster.ok("logs", job).count("list") == 2, "both workers' output")
    cluster.kill()
    cluster.up("--cluster", "cluster.yaml")  # what runs keeps its cores
    (cluster.folder / "go").touch()
    assert cluster.call("wait", job).returncode == 0
    assert {int(line.split()[-1]) for line in cluster.ok("logs", job).splitlines()} == set(usable[:2])


def test_workers_of_servers_with_more_cores_than_the_machine_are_held_by_a_quota_or_that_is_said(cluster):
    (cluster.folder / "cluster.yaml").write_text("version: 1\nservers:\n  - {id: s0, capacity: {cpu: 4096}}\n")
    cluster.up("--cluster", "cluster.yaml")
    job = cluster.submit("--cpus", "0.5", *say("grep -E ':cpu(,cpuacct)?:|^0:' /proc/self/cgroup"))
    assert cluster.call("wait", job).returncode == 0
    held = cluster.identity() in cluster.ok("logs", job)
    cluster.ok("down")
    _, errors = cluster.daemon.communicate()
    assert held or "counted and not held" in errors


def test_users_change_their_own_jobs_only_and_strangers_see_nothing(cluster):
    cluster.up()
    mine = cluster.submit("--workers", "1", *say("sleep 1000"))
    token = cluster.ok("token", "create", "ann").strip()
    ann = {"MAYPOLE_TOKEN": token}
    refused = cluster.call("cancel", mine, env=ann)
    assert (refused.returncode, "belongs to 'owner'" in refused.stderr) == (1, True)
    hers = cluster.call("submit", "--", "sleep", "1000", env=ann).stdout.strip()
    assert cluster.call("cancel", hers, env=ann).returncode == 0
    assert cluster.call("token", "list", env=ann).returncode == 1
    assert token not in cluster.ok("token", "list", "--json")
    cluster.ok("token", "revoke", "ann")
    stranger = cluster.call("queue", env=ann)
    assert stranger.returncode == 1 and "token" in stranger.stderr
    assert cluster.data.stat().st_mode & 0o77 == 0
    assert (cluster.data / "token").stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["submit"], ["no command"]),
        (["submit", "--workers", "0", "--", "true"], ["--workers", "'0'"]),
        (["submit", "--workers", "99", "--", "true"], ["99", "holds"]),
        (["submit", "--gpus", "1000", "--", "true"], ["gpu"]),
        (["submit", "--bandwidth", "fast", "--", "true"], ["--bandwidth", "fast"]),
        (["submit", "--utility", "square", "--", "true"], ["square", "sqrt"]),
        (["submit", "nothing.yaml"], ["nothing.yaml"]),
        (["submit", "--requeue", "--", "true"], ["--requeue"]),
        (["show", "99"], ["no job '99'"]),
        (["wait", "helo"], ["did you mean 'hello'?"]),
        (["cancle", "hello"], ["did you mean 'cancel'?"]),
        (["queue", "--state", "asleep"], ["asleep"]),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_that_says_what_is_wrong(cluster, arguments, words):
    cluster.up()
    cluster.submit("--name", "hello", "--", "true")
    done = cluster.call(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_without_a_daemon_commands_end_with_75_and_a_second_daemon_is_refused(cluster):
    cluster.up()
    second = cluster.call("up", "--listen", "127.0.0.1:0")
    assert second.returncode == 1 and "another daemon" in second.stderr
    cluster.ok("down")
    assert cluster.daemon.wait(LIMIT_S) == 0
    gone = cluster.call("down")
    assert gone.returncode == 75 and "maypole up" in gone.stderr


def test_commands_wait_for_a_daemon_that_is_starting(cluster):
    early = subprocess.Popen([PROGRAM, "submit", "--", "true"], env=cluster.environment, cwd=cluster.folder, stdout=subprocess.PIPE)
    cluster.up()
    assert early.communicate(timeout=LIMIT_S)[0] == b"1\n"
    assert early.returncode == 0
    assert cluster.call("wait", "1").returncode == 0


def test_down_by_an_address_does_not_wait_for_the_daemon_of_another_folder(cluster, tmp_path_factory):
    cluster.up()
    other = Cluster(tmp_path_factory.mktemp("other"))
    other.up()
    address, token = ((other.data / name).read_text().strip() for name in ("address", "token"))
    ended = cluster.call("down", env={"MAYPOLE_ADDRESS": address, "MAYPOLE_TOKEN": token})
    assert ended.returncode == 0, ended.stderr
    assert other.daemon.wait(LIMIT_S) == 0
    assert cluster.daemon.poll() is None
