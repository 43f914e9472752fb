# SPDX-License-Identifier: Apache-2.0
"""`maypole run` from outside: what workers see, and what comes out."""

import contextlib
import os
import re
import signal
import socket
import subprocess

from running import LIMIT_S, PROGRAM, environments, python, run, sh, start, until

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
    script = """import os, socket
if os.environ['RANK'] == '0':
    listener = socket.socket(fileno=int(os.environ['MAYPOLE_RENDEZVOUS_FD']))
    here = '%s:%d' % listener.getsockname()[:2]
    print(here == os.environ['MAYPOLE_RENDEZVOUS'], listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))"""
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
    odd = ["a b", "'", "$HOME", "*", "", "--", "-n", "caf\udce9"]
    script = """import os, sys
seen = [os.getcwd(), os.environ['OWN'], os.environ['EXTRA'], *sys.argv[1:]]
sys.stdout.buffer.write(os.fsencode('|'.join(seen)))"""
    environment = {**os.environ, "OWN": "caf\udce9"}
    done = run("--env", "EXTRA=x y", *python(script), *odd, cwd=here / "inside", env=environment, errors="surrogateescape")
    assert done.stdout == "|".join([str(here / "inside"), "caf\udce9", "x y", *odd]), done.stderr


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
    text, _ = start("-n", "2", *python(script), stderr=subprocess.STDOUT).communicate(timeout=LIMIT_S)
    lines = text.splitlines()
    assert len(lines) == 1200
    assert all(re.fullmatch(r"\[\d\] x{9000}", line) for line in lines)


def test_a_line_without_end_is_shown_in_parts(here):
    done = run("-n", "2", *python("import os, sys; sys.stdout.write('x' * 1000000 if os.environ['RANK'] == '0' else '')"))
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 65536 + 4
    assert sum(line.count("x") for line in lines) == 1000000


def test_a_slow_reader_loses_nothing_and_does_not_hold_up_signals(here):
    script = """import signal
signal.signal(signal.SIGUSR1, lambda *_: open('seen', 'w'))
for i in range(200000): print('line', i, 'x' * 60)"""
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
    script = "[ $RANK = 0 ] && { printf 'question? '; while [ ! -e go ]; do sleep 0.01; done; }; true"
    job = start("-n", "2", *sh(script), stdout=follower, stderr=follower)
    os.close(follower)
    text = b""
    while b"question? " not in text:
        text += os.read(leader, 4096)
    (here / "go").touch()
    assert job.wait(LIMIT_S) == 0
    os.close(leader)
