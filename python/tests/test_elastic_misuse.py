# SPDX-License-Identifier: Apache-2.0
"""What a script can do wrong with an elastic.Loop: each is an error that says what to write, none a run that hangs or trains nothing."""

import itertools
import subprocess
import sys

import maypole.torch as maypole
import pytest
import torch
from elastic_jobs import environment
from jobs import LIMIT_S, PROGRAM
from maypole.errors import UsageError

SAMPLES = 40
BATCH = 8  # 5 steps an epoch


def made(epochs=2, data=None, batch_size=BATCH, **options):
    """(model, optimizer, loop) of a small training, in this process alone."""
    maypole.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    optimizer = maypole.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    data = torch.utils.data.TensorDataset(torch.randn(SAMPLES, 4), torch.randn(SAMPLES, 1)) if data is None else data
    return model, optimizer, maypole.elastic.Loop(model, optimizer, data, batch_size, epochs=epochs, **options)


def train(model, optimizer, loop, until=None):
    """Leaves the loop after step `until`; returns how many were made here."""
    for made_here, batch in enumerate(loop, 1):
        with batch as (inputs, targets):
            optimizer.zero_grad()
            (model(inputs) - targets).square().mean().backward()
            optimizer.step()
        if loop.step == until:
            return made_here
    return loop.step


def test_a_batch_without_a_step_is_an_error():
    model, optimizer, loop = made()
    with pytest.raises(UsageError, match=r"optimizer.step\(\) was not called"):
        for batch in loop:
            with batch as (inputs, targets):
                (model(inputs) - targets).square().mean().backward()
    assert loop.step == 0


def test_a_batch_that_is_skipped_by_continue_is_an_error():
    model, optimizer, loop = made()
    with pytest.raises(UsageError, match=r"optimizer.step\(\) was not called"):
        for batch in loop:
            with batch:
                continue


def test_with_a_scaler_a_step_that_it_left_out_counts():
    class Scaler:
        def state_dict(self):
            return {}

    *_, loop = made(scaler=Scaler())
    for batch in itertools.islice(loop, 3):
        with batch:
            pass
    assert loop.step == 3


def test_a_second_step_in_a_batch_is_an_error():
    model, optimizer, loop = made()
    with pytest.raises(UsageError, match="called once in each batch"):
        for batch in loop:
            with batch as (inputs, targets):
                (model(inputs) - targets).square().mean().backward()
                optimizer.step()
                optimizer.step()


def test_an_error_in_a_step_passes_and_the_step_does_not_count():
    model, optimizer, loop = made()
    train(model, optimizer, loop, until=2)
    with pytest.raises(ZeroDivisionError):
        for batch in loop:
            with batch:
                raise ZeroDivisionError
    assert loop.step == 2
    train(model, optimizer, loop)
    assert loop.step == 10


def test_a_loop_that_was_left_goes_on_where_it_was_and_one_that_has_ended_gives_nothing():
    model, optimizer, loop = made()
    assert train(model, optimizer, loop, until=3) == 3
    assert train(model, optimizer, loop, until=4) == 1
    train(model, optimizer, loop)
    assert [*loop] == []


def test_a_loop_within_a_loop_is_an_error():
    model, optimizer, loop = made()
    with pytest.raises(UsageError, match="another loop is under way"):
        for _ in loop:
            train(model, optimizer, maypole.elastic.Loop(model, optimizer, [1] * SAMPLES, BATCH))
    with pytest.raises(UsageError, match="another loop is under way"):
        for _ in zip(loop, loop):
            pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": 1.5}, "epochs"),
        ({"batch_size": 0}, "batch"),
        ({"batch_size": 8.0}, "batch_size"),
        ({"seed": "x"}, "seed"),
        ({"drop_last": True}, "drop_last"),
        ({"data": iter(range(3))}, "length"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options, words):
    with pytest.raises(UsageError, match=words):
        made(**options)


def test_a_checkpoint_beyond_the_last_step_leaves_nothing_to_do(tmp_path):
    train(*made(epochs=3, checkpoint_dir=tmp_path))
    model, optimizer, loop = made(epochs=1, checkpoint_dir=tmp_path)
    assert train(model, optimizer, loop) == 15


def run_elastic(folder, workers, body):
    """Runs a script under `maypole run --elastic`."""
    script = folder / "script.py"
    script.write_text(f"from test_elastic_misuse import made, train\nimport maypole.torch as maypole\n{body}\nprint('ended', flush=True)\n")
    command = [PROGRAM, "run", "--elastic", "--workers", "1:4", "-n", str(workers), "--retries", "0", "--heartbeat", "30s"]
    return subprocess.run(
        [*command, "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**environment(), "TMPDIR": str(folder)},
    )


def test_a_second_loop_in_an_elastic_run_is_an_error(tmp_path):
    done = run_elastic(tmp_path, 1, "train(*made())\nprint('first')\ntrain(*made())")
    assert "first" in done.stdout and "ended" not in done.stdout
    assert "an elastic run has one elastic.Loop" in done.stderr
    assert done.returncode == 1


def test_a_worker_that_leaves_the_loop_alone_ends_the_run(tmp_path):
    done = run_elastic(tmp_path, 2, "training = made(epochs=1000)\ntrain(*training, until=3 if maypole.rank() == 1 else None)")
    assert "worker 1 left the loop and ended while others trained" in done.stderr
    assert done.returncode == 1


def test_workers_that_leave_the_loop_after_the_same_step_end_well(tmp_path):
    done = run_elastic(tmp_path, 2, "train(*made(), until=3)")
    assert done.stdout.count("ended") == 2
    assert done.returncode == 0, done.stderr
