# SPDX-License-Identifier: Apache-2.0
"""How a job ends, and that nothing of it is left behind."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from running import LIMIT_S, PROGRAM, marked_processes, python, run, sh, start, until

# ---- how it ends ----


@pytest.mark.parametrize("code", [1, 3, 77, 255])
def test_the_failing_rank_gives_the_exit_code(here, code):
    done = run("-n", "3", *sh(f"[ $RANK = 1 ] && exit {code}; exec sleep 1000"))
    assert done.returncode == code
    assert f"rank 1 on host localhost failed with exit code {code} after " in done.stderr


def test_a_killed_rank_gives_128_and_its_signal(here):
    done = run("-n", "2", *sh("[ $RANK = 1 ] && kill -9 $$; exec sleep 1000"))
    assert done.returncode == 137
    assert "rank 1 on host localhost was killed by SIGKILL after " in done.stderr


def test_the_failing_ranks_own_error_comes_last(here):
    script = """import os, sys, time
if os.environ['RANK'] == '1':
    os.symlink(str(os.getpid()), 'first')
    raise ValueError('the reason')
while not os.path.islink('first') or os.path.exists('/proc/' + os.readlink('first')): time.sleep(0.01)
sys.exit('the consequence')"""
    done = run("-n", "3", *python(script))
    assert done.returncode == 1
    assert done.stderr.count("the consequence") == 2
    assert done.stderr.rindex("the consequence") < done.stderr.index("maypole: rank 1 on host localhost failed with exit code 1")
    assert done.stderr.endswith("[1] ValueError: the reason\n")


def test_a_survivor_that_says_which_peer_is_lost_is_not_blamed(here):
    script = """import os, sys, time
if os.environ['RANK'] == '0':
    os.symlink(str(os.getpid()), 'survivor')
    sys.exit('rank 1 on host localhost is lost: it closed the connection')
while not os.path.islink('survivor') or os.path.exists('/proc/' + os.readlink('survivor')): time.sleep(0.01)
sys.exit(9)"""
    done = run("-n", "2", *python(script))
    assert done.returncode == 9
    assert "rank 1 on host localhost failed with exit code 9" in done.stderr


def test_survivors_may_clean_up_on_sigterm_and_are_killed_if_they_do_not(here):
    script = """import os, signal, sys, time
rank = os.environ['RANK']
if rank == '0': signal.signal(signal.SIGTERM, lambda *_: (print('cleaned up', flush=True), os._exit(0)))
if rank == '1': signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('ready-' + rank, 'w').close()
while rank == '2' and not all(os.path.exists('ready-' + r) for r in '01'): time.sleep(0.01)
if rank == '2': sys.exit(5)
while True: signal.pause()"""
    done = run("-n", "3", *python(script))
    assert done.returncode == 5
    assert "[0] cleaned up\n" in done.stdout


def test_a_stopped_worker_is_ended_too(here):
    done = run("-n", "2", *sh("[ $RANK = 1 ] && { while [ ! -e stopping ]; do sleep 0.01; done; exit 4; }; touch stopping; kill -STOP $$"))
    assert done.returncode == 4


def test_a_stopped_rank_is_named_before_the_survivor_that_gave_it_up(here):
    script = """import os, signal, sys, time
if os.environ['RANK'] == '1':
    os.symlink(str(os.getpid()), 'stopped')
    os.kill(os.getpid(), signal.SIGSTOP)
while not os.path.islink('stopped') or ') T ' not in open(f"/proc/{os.readlink('stopped')}/stat").read(): time.sleep(0.01)
sys.exit('rank 1 on host localhost is lost: silent for 2 s')"""
    done = run("-n", "2", "--json", *python(script))
    assert done.returncode == 1
    assert "maypole: rank 1 on host localhost answered no more and had to be ended; rank 0 on host localhost failed with" in done.stderr
    assert json.loads(done.stdout)["failed_rank"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_workers(here, number):
    job = start("-n", "2", *sh("touch up-$RANK; exec sleep 1000"))
    until(lambda: (here / "up-0").exists() and (here / "up-1").exists(), "the workers")
    job.send_signal(number)
    _, errors = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 128 + number
    assert f"interrupted by {number.name}" in errors


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_reach_the_script_only(here, number):
    script = """import os, signal, subprocess, sys
child = subprocess.Popen(['sleep', '1000'])
def on_signal(*_):
    print('saw it, child lives:', child.poll() is None, flush=True)
    sys.exit(0)
signal.signal(signal.NUMBER, on_signal)
open('up-' + os.environ['RANK'], 'w').close()
while True: signal.pause()""".replace("NUMBER", number.name)
    job = start("-n", "2", *python(script))
    until(lambda: (here / "up-0").exists() and (here / "up-1").exists(), "the workers")
    job.send_signal(number)
    out, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0
    assert out.count("saw it, child lives: True") == 2


def test_a_handler_for_sigint_decides_the_exit_code(here):
    job = start("-n", "2", *sh("trap 'exit 0' INT; touch up-$RANK; while true; do sleep 0.01; done"))
    until(lambda: (here / "up-0").exists() and (here / "up-1").exists(), "the workers")
    job.send_signal(signal.SIGINT)
    assert job.wait(LIMIT_S) == 0


def test_the_second_interrupt_kills(here):
    script = """import os, signal
signal.signal(signal.SIGINT, lambda *_: open('heard', 'w'))
open('up', 'w').close()
while True: signal.pause()"""
    job = start(*python(script))
    until((here / "up").exists, "the worker")
    job.send_signal(signal.SIGINT)
    until((here / "heard").exists, "the first interrupt")
    job.send_signal(signal.SIGINT)
    assert job.wait(LIMIT_S) == 130


def test_more_workers_than_open_files_allow_are_one_line(here):
    job = ["sh", "-c", f"ulimit -n 24; exec {PROGRAM} run -n 8 -- touch started"]
    done = subprocess.run(job, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert done.stderr == (
        "maypole: host 'localhost': 8 workers need 32 open files and the limit is 24: raise it, as `ulimit -n 1024` does\n"
    )
    assert not (here / "started").exists()


@pytest.mark.parametrize("options", [("-n", "2"), ("--elastic", "--workers", "1:2", "-n", "2")])
@pytest.mark.parametrize("limit", [4, 5, 6, 8, 10, 12])
def test_a_launcher_without_open_files_says_which_limit_to_raise(here, limit, options):
    command = " ".join(["exec", str(PROGRAM), "run", *options, "--", "true"])
    done = subprocess.run(["sh", "-c", f"ulimit -n {limit}; {command}"], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode in (1, 2), done
    assert "as `ulimit -n 1024` does" in done.stderr.splitlines()[-1]


def test_more_hosts_than_open_files_allow_are_one_line(here):
    hosts = ",".join(f"127.0.0.{i}:1" for i in range(1, 31))
    command = f"exec {PROGRAM} run --hosts {hosts} --launcher 'env {{command}}' -- touch started"
    done = subprocess.run(["sh", "-c", f"ulimit -n 20; {command}"], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and done.stderr.endswith("as `ulimit -n 1024` does\n"), done.stderr
    assert not (here / "started").exists()


# ---- nothing is left ----

FAMILY = """import os, subprocess, sys, time
subprocess.Popen(['sleep', '1000'])
subprocess.Popen(['sleep', '1000'], start_new_session=True)
subprocess.Popen(['sh', '-c', 'setsid sleep 1000 & exit 0'])
open('up-' + os.environ['RANK'], 'w').close()
"""


def test_grandchildren_in_other_sessions_end_with_the_job(here):
    assert run("-n", "2", *python(FAMILY)).returncode == 0


def test_nothing_outlives_a_launcher_that_is_killed(here):
    job = start("-n", "2", *python(FAMILY + "time.sleep(1000)"))
    until(lambda: (here / "up-0").exists() and (here / "up-1").exists(), "the workers")
    job.kill()
    job.communicate(timeout=LIMIT_S)
    until(lambda: marked_processes() == [], "the end of all processes")
    until(lambda: list((here / "tmp").iterdir()) == [], "the end of the temporary folder")


def test_an_agent_that_is_killed_is_a_lost_host(here):
    job = start("-n", "2", *python(FAMILY + "time.sleep(1000)"))
    until(lambda: (here / "up-0").exists() and (here / "up-1").exists(), "the workers")
    [agent] = [pid for pid in marked_processes() if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"agent"]]
    os.kill(agent, signal.SIGKILL)
    _, errors = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 1
    assert "host 'localhost': the connection to its agent is lost" in errors
    assert "was killed by SIGKILL" in errors
