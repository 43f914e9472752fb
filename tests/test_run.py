# SPDX-License-Identifier: Apache-2.0
"""`maypole run` from outside: what workers see, what comes out, how it ends, and that nothing is left behind."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "maypole"
LIMIT_S = 60

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/maypole is not built")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of its own, as working directory and as TMPDIR, so that what a run leaves behind is seen."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("MAYPOLE_TEST_MARK", f"mark-{os.getpid()}-{time.monotonic_ns()}")
    yield tmp_path
    assert list(temporary.iterdir()) == []
    assert marked_processes() == []


def marked_processes() -> list[int]:
    """Processes that carry this test's mark in their environment: everything that a run has started and not ended."""
    mark = f"MAYPOLE_TEST_MARK={os.environ['MAYPOLE_TEST_MARK']}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def until(condition, what: str):
    """Waits for a condition that another process brings about."""
    deadline = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {LIMIT_S} s"
        time.sleep(0.01)
    return value


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, "run", *arguments], capture_output=True, text=True, timeout=LIMIT_S, **options)


def start(*arguments: str, **options) -> subprocess.Popen:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([PROGRAM, "run", *arguments], **options)


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


def python(script: str) -> list[str]:
    return ["--", sys.executable, "-c", script]


def environments(text: str) -> dict[int, dict[str, str]]:
    """Parses the prefixed output of `env` by rank."""
    ranks: dict[int, dict[str, str]] = {}
    for line in text.splitlines():
        rank, variable = re.fullmatch(r"\[(\d+)\] (.*)", line).groups()
        name, _, value = variable.partition("=")
        ranks.setdefault(int(rank), {})[name] = value
    return ranks


# ---- what a worker sees ----


def test_workers_know_who_they_are(here):
    done = run("-n", "3", "--schedule", "dear", "--bandwidth", "200Mbps", "--transport", "tcp", "--timeout", "1min", "--", "env")
    assert done.returncode == 0, done.stderr
    ranks = environments(done.stdout)
    assert sorted(ranks) == [0, 1, 2]
    for rank, variables in ranks.items():
        assert variables["RANK"] == variables["LOCAL_RANK"] == str(rank)
        assert variables["WORLD_SIZE"] == variables["LOCAL_WORLD_SIZE"] == "3"
        assert variables["MAYPOLE_SCHEDULE"] == "dear"
        assert variables["MAYPOLE_BANDWIDTH"] == "200Mbps"
        assert variables["MAYPOLE_TRANSPORT"] == "tcp"
        assert variables["MAYPOLE_TIMEOUT"] == "1min"
        assert variables["MASTER_ADDR"] == "127.0.0.1"
        assert int(variables["OMP_NUM_THREADS"]) >= 1
        assert re.fullmatch("[0-9a-f]{64}", variables["MAYPOLE_SECRET"])
        assert ("MAYPOLE_RENDEZVOUS_FD" in variables) == (rank == 0)
    for shared in ("MAYPOLE_JOB_ID", "MAYPOLE_SECRET", "MAYPOLE_RENDEZVOUS", "MASTER_PORT"):
        assert len({variables[shared] for variables in ranks.values()}) == 1
    assert "MAYPOLE_TIMELINE_DIR" not in ranks[0]


def test_rank_0_inherits_a_listening_rendezvous(here):
    script = (
        "import os, socket; s = socket.socket(fileno=int(os.environ['MAYPOLE_RENDEZVOUS_FD'])) if os.environ['RANK'] == '0' else None\n"
        "if s: print('%s:%d' % s.getsockname()[:2] == os.environ['MAYPOLE_RENDEZVOUS'], s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))"
    )
    assert run("-n", "2", *python(script)).stdout == "[0] True 1\n"


def test_master_port_is_free_also_where_the_usual_one_is_taken(here):
    script = "import os, socket; socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))); print('bound')"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 29500)))
        done = run(*python(script), env={**os.environ, "MASTER_PORT": "29500"})
    assert (done.returncode, done.stdout) == (0, "bound\n")


def test_a_job_inside_a_job_gets_its_own_variables(here):
    done = run("-n", "2", *sh(f'[ $RANK = 1 ] || {PROGRAM} run -n 3 -- sh -c "echo \\$RANK of \\$WORLD_SIZE fd=\\$MAYPOLE_RENDEZVOUS_FD"'))
    assert done.returncode == 0, done.stderr
    assert "[0] [2] 2 of 3 fd=\n" in done.stdout


def test_directory_environment_and_arguments_are_kept(here):
    (here / "inside").mkdir()
    odd = ["a b", "'", "$HOME", "*", "", "caf\udce9"]
    script = "import os, sys; print(os.getcwd(), os.environ['OWN'], os.environ['EXTRA'], os.fsencode(repr(sys.argv[1:]).encode('utf8', 'surrogateescape')))"
    done = run("--env", "EXTRA=x y", *python(script), *odd, cwd=here / "inside", env={**os.environ, "OWN": "caf\udce9"}, errors="surrogateescape")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{here / 'inside'} caf\udce9 x y ")
    assert run("--", sys.executable, "-c", "import sys; sys.exit(sys.argv[1:] != ['a b', '', '$HOME', '--', '-n'])", "a b", "", "$HOME", "--", "-n").returncode == 0


def test_workers_have_no_standard_input_and_no_stray_descriptors(here):
    done = run("-n", "2", *sh("cat; ls /proc/self/fd | wc -l"), input="text")
    assert sorted(done.stdout.split()) == ["4", "5", "[0]", "[1]"]


def test_a_command_needs_no_dashes(here):
    assert run("-n", "2", "echo", "-n", "hi").stdout.count("hi") == 2
    assert run("echo", "-x", "--", "-n", "hi").stdout == "-x -- -n hi\n"


# ---- output ----


def test_streams_stay_apart_and_lines_have_their_rank(here):
    done = run("-n", "2", *sh('echo "out $RANK"; echo "err $RANK" >&2; printf "no end $RANK"'))
    assert sorted(done.stdout.splitlines()) == ["[0] no end 0", "[0] out 0", "[1] no end 1", "[1] out 1"]
    assert sorted(done.stderr.splitlines()) == ["[0] err 0", "[1] err 1"]


def test_one_worker_is_passed_through_as_it_is(here):
    assert run(*sh("printf 'a\\nb'")).stdout == "a\nb"


def test_lines_are_never_mixed_nor_lost(here):
    script = "import os, sys\nfor i in range(3000): sys.stdout.write(os.environ['RANK'] * 200 + ' %d\\n' % i)"
    done = run("-n", "3", *python(script))
    seen = {rank: [] for rank in range(3)}
    for line in done.stdout.splitlines():
        rank, number = re.fullmatch(r"\[(\d)\] \1{200} (\d+)", line).groups()
        seen[int(rank)].append(int(number))
    assert all(numbers == list(range(3000)) for numbers in seen.values())


def test_streams_that_share_a_pipe_do_not_mix_lines(here):
    script = "import os, sys\nfor i in range(300):\n  for s in (sys.stdout, sys.stderr): s.write('x' * 9000 + '\\n'); s.flush()"
    done = subprocess.run([PROGRAM, "run", "-n", "2", *python(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    lines = done.stdout.splitlines()
    assert len(lines) == 1200
    assert all(re.fullmatch(r"\[\d\] x{9000}", line) for line in lines)


def test_a_line_without_end_is_shown_in_parts(here):
    done = run("-n", "2", *python("import os, sys; sys.stdout.write('x' * 1000000 if os.environ['RANK'] == '0' else '')"))
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 65536 + 4
    assert sum(line.count("x") for line in lines) == 1000000


def test_a_slow_reader_loses_nothing_and_does_not_hold_up_signals(here):
    script = "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: open('seen', 'w'))\nfor i in range(200000): print('line', i, 'x' * 60)"
    job = start("-n", "1", *python(script))
    first = job.stdout.readline()  # the worker has its handler; then we do not read, and the pipes fill
    job.send_signal(signal.SIGUSR1)
    until((here / "seen").exists, "the signal")
    rest = job.stdout.read()
    assert job.wait(LIMIT_S) == 0
    assert [line.split()[1] for line in (first + rest).splitlines()] == [str(i) for i in range(200000)]


def test_a_reader_that_leaves_does_not_end_the_job(here):
    job = start("-n", "2", *sh("sleep 0.1; for i in 1 2 3; do echo $i; done; touch done-$RANK"))
    job.stdout.close()
    assert job.wait(LIMIT_S) == 0
    assert (here / "done-0").exists() and (here / "done-1").exists()


def test_colour_only_on_a_terminal(here):
    leader, follower = os.openpty()
    job = start("-n", "2", *sh("printf 'x\\n'"), stdout=follower, stderr=follower, stdin=follower)
    os.close(follower)
    text = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while part := os.read(leader, 4096):
            text += part
    os.close(leader)
    assert job.wait(LIMIT_S) == 0
    assert text.count(b"\x1b[") == 4
    assert "\x1b" not in run("-n", "2", *sh("echo x")).stdout


def test_an_unfinished_line_shows_on_a_terminal(here):
    leader, follower = os.openpty()
    job = start("-n", "2", *sh("[ $RANK = 0 ] && { printf 'question? '; while [ ! -e go ]; do sleep 0.01; done; }; true"), stdout=follower, stderr=follower)
    os.close(follower)
    text = b""
    while b"question? " not in text:
        text += os.read(leader, 4096)
    (here / "go").touch()
    assert job.wait(LIMIT_S) == 0
    os.close(leader)


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
    raise ValueError('the reason')
while not os.path.exists('go'): time.sleep(0.01)
print('the consequence', file=sys.stderr)
sys.exit(1)"""
    job = start("-n", "3", *python(script))
    seen = []
    for line in job.stderr:
        seen.append(line)
        if "the reason" in line:
            (here / "go").touch()
    assert job.wait(LIMIT_S) == 1
    text = "".join(seen)
    assert text.count("the consequence") == 2
    assert text.rindex("the consequence") < text.index("maypole: rank 1 on host localhost failed with exit code 1")
    assert seen[-1] == "[1] ValueError: the reason\n"


def test_a_survivor_that_says_which_peer_is_lost_is_not_blamed(here):
    script = """import os, sys, time
if os.environ['RANK'] == '0':
    sys.exit('rank 1 on host localhost is lost: it closed the connection')
while os.path.exists('/proc/%s' % open('pid').read()): time.sleep(0.01)
sys.exit(9)"""
    done = run("-n", "2", *python("import os\nif os.environ['RANK'] == '0': open('pid.part', 'w').write(str(os.getpid())); os.rename('pid.part', 'pid')\nimport time\nwhile not os.path.exists('pid'): time.sleep(0.01)\n" + script))
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
    script = "import os, signal; signal.signal(signal.SIGINT, lambda *_: open('heard', 'w')); open('up', 'w').close()\nwhile True: signal.pause()"
    job = start(*python(script))
    until((here / "up").exists, "the worker")
    job.send_signal(signal.SIGINT)
    until((here / "heard").exists, "the first interrupt")
    job.send_signal(signal.SIGINT)
    assert job.wait(LIMIT_S) == 130


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


# ---- wrong use ----


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--schedule", "fast"], "--schedule"),
        (["--backend", "mpi"], "--backend"),
        (["--transport", "udp"], "--transport"),
        (["--bandwidth", "quick"], "--bandwidth"),
        (["--timeout", "soon"], "--timeout"),
        (["--interface", "no-such0"], "--interface"),
        (["--hosts", "a"], "--hosts"),
        (["--hosts", "a:2", "-n", "3"], "-n"),
        (["-n", "0"], "-n"),
        (["-n", "two"], "-n"),
        (["--launcher", "ssh {host}"], "--launcher"),
        (["--launcher", "'ssh {host} {command}"], "--launcher"),
        (["--report", "no/such/r.json"], "--report"),
        (["--timeline", "no/such/t.json"], "--timeline"),
        (["--env", "SURELY_NOT_SET"], "--env"),
        (["--colour"], "--colour"),
    ],
)
def test_wrong_use_is_one_line_that_names_the_flag(here, arguments, named):
    done = run(*arguments, "--", "touch", "started")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and named in done.stderr
    assert done.stdout == ""
    assert not (here / "started").exists()


def test_no_command_is_wrong_use(here):
    done = run("-n", "2")
    assert done.returncode == 2 and "no command" in done.stderr


def test_a_command_that_does_not_exist_is_127(here):
    done = run("-n", "2", "--", "no-such-program")
    assert done.returncode == 127
    assert "cannot start 'no-such-program': No such file or directory" in done.stderr


def test_version(here):
    done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True)
    assert re.fullmatch(r"maypole \d+\.\d+\.\d+ \(\w+\)\n", done.stdout)


# ---- hosts and launchers ----


def test_hosts_on_this_machine_need_no_launcher(here):
    done = run("--hosts", "a=127.0.0.1:1,b=127.0.0.1:2", "--", "env")
    assert done.returncode == 0, done.stderr
    ranks = environments(done.stdout)
    assert [ranks[rank]["MAYPOLE_HOST"] for rank in range(3)] == ["a", "b", "b"]
    assert [ranks[rank]["LOCAL_RANK"] for rank in range(3)] == ["0", "0", "1"]
    assert [ranks[rank]["LOCAL_WORLD_SIZE"] for rank in range(3)] == ["1", "2", "2"]


def test_a_launcher_runs_the_command_as_plain_words(here):
    done = run("--hosts", "a:1,b:1", "--launcher", "env FOO='1 2' NAME={host} {command}", *sh('echo "$FOO" $NAME $MAYPOLE_HOST'))
    assert sorted(done.stdout.splitlines()) == ["[0] 1 2 a a", "[1] 1 2 b b"]


def test_the_secret_is_never_on_a_command_line(here):
    done = run("--hosts", "a:1", "--launcher", "env {command}", *sh("tr '\\0' ' ' < /proc/$PPID/cmdline; cat /proc/[0-9]*/cmdline 2>/dev/null | grep -c $MAYPOLE_SECRET"))
    assert f"{PROGRAM} agent 0" in done.stdout


def test_a_launcher_like_ssh_gets_words_that_a_shell_leaves_alone(here):
    (here / "fake-ssh").write_text('#!/bin/sh\nshift\nunset TMPDIR\nexec env -i PATH=/usr/bin:/bin HOME=/ TMPDIR="$PWD/tmp" MAYPOLE_TEST_MARK="$MAYPOLE_TEST_MARK" sh -c "$*"\n')
    (here / "fake-ssh").chmod(0o755)
    odd = "two words; $HOME 'quoted' \"double\""
    script = "import os, sys; print(sys.argv[1], os.environ.get('SECRET_OF_MINE'), os.environ['OMP_PROC_BIND'])"
    done = run("--hosts", "a:1", "--launcher", "./fake-ssh {host} {command}", *python(script), odd, env={**os.environ, "SECRET_OF_MINE": "x", "OMP_PROC_BIND": "false"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{odd} None false\n"


def test_an_unknown_host_is_one_line_with_its_name_and_the_exit_code(here):
    done = run("--hosts", "a:1,nowhere:1", "--launcher", "sh -c 'test {host} != nowhere || exit 255; exec {command}'", *sh("touch started"))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "host 'nowhere'" in done.stderr and "exited with code 255" in done.stderr
    assert not (here / "started").exists()


def test_a_launcher_that_does_not_exist_names_the_host(here):
    done = run("--hosts", "far:1", "--launcher", "no-such-launcher {command}", "--", "true")
    assert done.returncode == 1
    assert "host 'far'" in done.stderr and "no-such-launcher" in done.stderr


def test_a_launcher_that_talks_is_shown(here):
    done = run("--hosts", "a:1", "--launcher", "sh -c 'echo Welcome to {host}; exec {command}'", "--", "true")
    assert done.returncode == 1
    assert "Welcome to a" in done.stderr and "host 'a'" in done.stderr


def test_an_address_that_the_host_does_not_have_is_named(here):
    done = run("--hosts", "a=192.0.2.1:1,b=192.0.2.2:1", "--launcher", "env {command}", "--", "true")
    assert done.returncode == 1
    assert "host 'a'" in done.stderr and "192.0.2.1" in done.stderr


def test_a_lost_host_is_named(here):
    script = "touch up-$RANK; exec sleep 1000"
    job = start("--hosts", "a:1,b:1", "--launcher", "env MARK={host} {command}", *sh(script))
    until(lambda: (here / "up-0").exists() and (here / "up-1").exists(), "the workers")
    agents = [pid for pid in marked_processes() if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"agent"]]
    [lost] = [pid for pid in agents if b"MARK=b" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    os.kill(lost, signal.SIGKILL)
    _, errors = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 1
    assert "host 'b'" in errors


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


def test_hosts_may_be_network_namespaces(here, two_namespaces):
    first, second = two_namespaces
    script = """import os, socket
host, port = os.environ['MAYPOLE_RENDEZVOUS'].rsplit(':', 1)
if os.environ['RANK'] == '0':
    listener = socket.socket(fileno=int(os.environ['MAYPOLE_RENDEZVOUS_FD']))
    listener.settimeout(30)
    print('met', listener.accept()[1][0])
else:
    socket.create_connection((host, int(port)), timeout=30)"""
    done = run("--hosts", f"{first}=10.78.0.1:1,{second}=10.78.0.2:1", "--launcher", "nsenter --net=/run/netns/{host} {command}", *python(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0] met 10.78.0.2\n"


def test_an_unknown_namespace_is_named(here, two_namespaces):
    done = run("--hosts", f"{two_namespaces[0]}=10.78.0.1:1,gone=10.78.0.2:1", "--launcher", "nsenter --net=/run/netns/{host} {command}", "--", "true")
    assert done.returncode == 1
    assert "host 'gone'" in done.stderr and "exited with code 1" in done.stderr


# ---- report and timeline ----

WORKER = """import json, os, sys
rank = int(os.environ['RANK'])
scale = [1.0, 1.1, 2.0][rank]
group = {'bytes': 1000, 'reduce_scatter_s': 0.1 * scale, 'all_gather_s': 0.2 * scale, 'exposed_s': 0.3 * scale}
report = {'rank': rank, 'iterations': 9, 'iteration_s': 1.0, 'forward_s': 0.2 * scale, 'backward_s': 0.4 * scale, 'reduce_scatter_s': 0.1, 'all_gather_s': 0.2,
          'exposed_s': 0.3, 'communication_s': 0.3, 'bound_s': 0.8, 'schedule': 'weave', 'update': 'replicated', 'world_size': 3, 'groups': [group]}
json.dump(report, open(os.environ['MAYPOLE_REPORT_DIR'] + '/rank-%d.json' % rank, 'w'))
if 'MAYPOLE_TIMELINE_DIR' in os.environ:
    events = [{'ph': 'X', 'name': 'F', 'ts': i, 'dur': 1, 'pid': os.getpid(), 'tid': 1} for i in range(EVENTS)]
    json.dump({'traceEvents': events}, open(os.environ['MAYPOLE_TIMELINE_DIR'] + '/rank-%d.json' % rank, 'w'))
"""


def test_reports_become_one_of_medians_and_a_table(here):
    done = run("-n", "3", "--report", "r.json", "--timeline", "t.json", *python(WORKER.replace("EVENTS", "4")))
    assert done.returncode == 0, done.stderr
    report = json.loads((here / "r.json").read_text())
    assert set(report) == set(
        "iteration_s forward_s backward_s reduce_scatter_s all_gather_s exposed_s bound_s schedule update world_size machine commit groups".split()
    )
    assert report["forward_s"] == pytest.approx(0.22)
    assert report["groups"][0]["exposed_s"] == pytest.approx(0.33)
    assert "80.0 % of it reached" in done.stderr
    assert "rank 2 on host localhost is slow" in done.stderr
    events = json.loads((here / "t.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2}
    assert sum(event["ph"] == "X" for event in events) == 12


def test_json_is_one_object_on_standard_output(here):
    done = run("-n", "3", "--json", *python(WORKER + "print('words')"))
    summary = json.loads(done.stdout)
    assert set(summary) == {"job_id", "exit_code", "seconds", "world_size", "failed_rank", "failed_host", "report"}
    assert summary["exit_code"] == 0 and summary["report"]["schedule"] == "weave"
    assert done.stderr.count("words") == 3
    failed = run("-n", "2", "--json", *sh("[ $RANK = 0 ] || exit 6; exec sleep 1000"))
    summary = json.loads(failed.stdout)
    assert (summary["exit_code"], summary["failed_rank"], summary["failed_host"], summary["report"]) == (6, 1, "localhost", None)


def test_a_job_that_measured_nothing_says_so(here):
    done = run("--report", "r.json", "--", "true")
    assert done.returncode == 0
    assert "--report r.json is not written" in done.stderr


def test_a_full_disk_is_one_clear_line(here):
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    small = here / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode != 0:
        pytest.skip("this machine cannot mount a tmpfs")
    try:
        (small / "t.json").write_text("the old one")
        done = run("-n", "3", "--timeline", str(small / "t.json"), *python(WORKER.replace("EVENTS", "20000")))
        assert (small / "t.json").read_text() == "the old one"
        assert list(small.iterdir()) == [small / "t.json"]
    finally:
        subprocess.run(["umount", small], check=True)
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "--timeline" in line and "No space left on device" in line]


def test_a_damaged_report_is_named(here):
    done = run("-n", "2", *sh('[ $RANK = 0 ] || echo "{" > $MAYPOLE_REPORT_DIR/rank-1.json'))
    assert done.returncode == 0
    assert "the report of rank 1 is damaged" in done.stderr
