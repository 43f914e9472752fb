# SPDX-License-Identifier: Apache-2.0
"""`maypole run`: wrong use, hosts and launchers."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from running import LIMIT_S, NSENTER, PROGRAM, environments, marked_processes, python, run, sh, start, until

# ---- wrong use ----


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--schedule", "fast"], "--schedule"),
        (["--backend", "mpi"], "--backend"),
        (["--transport", "udp"], "--transport"),
        (["--bandwidth", "quick"], "--bandwidth"),
        (["--timeout", "soon"], "--timeout"),
        (["--timeout", "0s"], "--timeout"),
        (["--start-timeout", "0s"], "--start-timeout"),
        (["--hosts", ""], "--hosts"),
        (["--launcher", ""], "--launcher"),
        (["--bandwidth", ""], "--bandwidth"),
        (["--report", ""], "--report"),
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


def test_a_launcher_that_does_not_exist_names_the_host_and_the_flag(here):
    done = run("--hosts", "elsewhere=10.0.0.1:1", "--launcher", "no-such-program {host} {command}", "--", "true")
    assert done.returncode == 1
    assert "host 'elsewhere': cannot start 'no-such-program'" in done.stderr and "check --launcher" in done.stderr


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
    script = """import os, pathlib
lines = {}
for entry in pathlib.Path('/proc').iterdir():
    if entry.name.isdigit():
        try: lines[int(entry.name)] = (entry / 'cmdline').read_bytes()
        except OSError: pass
print(lines[os.getppid()].split(b'\\0')[1], any(os.environ['MAYPOLE_SECRET'].encode() in line for line in lines.values()))"""
    assert run("--hosts", "a:1", "--launcher", "env {command}", *python(script)).stdout == "b'agent' False\n"


def test_a_launcher_like_ssh_gets_words_that_a_shell_leaves_alone(here):
    kept = 'TMPDIR="$TMPDIR" MAYPOLE_TEST_MARK="$MAYPOLE_TEST_MARK"'
    (here / "fake-ssh").write_text(f'#!/bin/sh\nshift\nexec env -i PATH=/usr/bin:/bin HOME=/ {kept} sh -c "$*"\n')
    (here / "fake-ssh").chmod(0o755)
    odd = "two words; $HOME 'quoted' \"double\""
    script = "import os, sys; print(sys.argv[1], os.environ.get('SECRET_OF_MINE'), os.environ['OMP_PROC_BIND'])"
    environment = {**os.environ, "SECRET_OF_MINE": "x", "OMP_PROC_BIND": "false"}
    done = run("--hosts", "a:1", "--launcher", "./fake-ssh {host} {command}", *python(script), odd, env=environment)
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
    done = run("--hosts", f"{first}=10.78.0.1:1,{second}=10.78.0.2:1", "--launcher", NSENTER, *python(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0] met 10.78.0.2\n"


def test_an_unknown_namespace_is_named(here, two_namespaces):
    done = run("--hosts", f"{two_namespaces[0]}=10.78.0.1:1,gone=10.78.0.2:1", "--launcher", NSENTER, "--", "true")
    assert done.returncode == 1
    assert "host 'gone'" in done.stderr and "exited with code 1" in done.stderr


SHAPED = """import sys, torch
import maypole.torch as maypole
maypole.init()
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512, bias=False) for _ in range(4)))
optimizer = maypole.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model, group_size='1MB')
for _ in range(10):
    optimizer.zero_grad()
    model(torch.ones(1, 512)).sum().backward()
    optimizer.step()
"""


def test_the_bound_of_a_shaped_link_is_that_of_its_rate_and_not_of_its_burst(here, two_namespaces):
    sent, rate = 4 * 512 * 512 * 4, 40e6 / 8  # both halves of an all-reduce of two ranks
    for name in two_namespaces:
        shape = f"tc -n {name} qdisc add dev eth0 root tbf rate 40mbit burst 512kb latency 20ms"
        if subprocess.run(shape.split(), capture_output=True).returncode != 0:
            pytest.skip(f"this machine cannot `{shape}`")
    hosts = ",".join(f"{name}={address}:1" for name, address in zip(two_namespaces, ("10.78.0.1", "10.78.0.2"), strict=True))
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent / "python"), "TORCHINDUCTOR_CACHE_DIR": str(here / "cache")}
    done = run("--hosts", hosts, "--launcher", NSENTER, "--report", "r.json", *python(SHAPED), env=environment)
    assert done.returncode == 0, done.stderr
    # At most what an iteration took, which grows when the machine is busy; the rate of the probe, all of it a burst, gave a hundredth.
    assert json.loads((here / "r.json").read_text())["bound_s"] > 0.9 * sent / rate
