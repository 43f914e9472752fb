# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of elastic runs: whole or not there, verified, written beside training, and enough to go on when nobody is left."""

import errno
import os
import re
import shutil
import subprocess
import threading

import pytest
import torch
from elastic_jobs import ElasticRun, check_digests, check_ledgers, check_weights, environment, lines_of, script
from jobs import LIMIT_S, PROGRAM
from maypole.errors import UsageError
from maypole.torch.elastic import checkpoint_file, checkpoints

FACTS = ["200 samples", "weight torch.float32 (3, 2)"]


def state_of(step):
    tensors = [torch.full((3, 2), float(step)), torch.arange(5, dtype=torch.bfloat16), torch.empty(0), torch.tensor(step)]
    return {"step": step, "tensors": dict(zip("abcd", tensors)), "scheduler": {"lr": 0.1, "name": None, 3: (1, [True])}}


def same(state, other):
    assert state.keys() == other.keys() and state["scheduler"] == other["scheduler"] and state["step"] == other["step"]
    for name, tensor in other["tensors"].items():
        assert state["tensors"][name].dtype == tensor.dtype and torch.equal(state["tensors"][name], tensor)


def folder_with(tmp_path, *steps, keep=3):
    folder = checkpoints.Checkpoints(tmp_path, 10, keep, FACTS)
    for step in steps:
        folder.begin(step, state_of(step))
        folder.finish()
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def path_of(folder, step):
    return folder / f"checkpoint-{step:012d}.maypole"


def test_what_is_read_is_what_was_written_and_the_last_ones_are_kept(tmp_path):
    folder_with(tmp_path, 10, 20, 30, 40, keep=2)
    assert names(tmp_path) == [path_of(tmp_path, step).name for step in (30, 40)]
    again = checkpoints.Checkpoints(tmp_path, "10min", 2, FACTS)
    assert again.newest() == 40
    same(again.load(40), state_of(40))
    same(again.load(30), state_of(30))


def test_the_state_may_change_and_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    write, may_write = checkpoint_file.write, threading.Event()
    monkeypatch.setattr(checkpoint_file, "write", lambda *arguments: (may_write.wait(LIMIT_S), write(*arguments)))
    folder = checkpoints.Checkpoints(tmp_path, 10, 3, FACTS)
    assert not folder.due(9) and folder.due(10)
    state = state_of(10)
    folder.begin(10, state)
    state["tensors"]["a"].fill_(-1)
    assert not folder.due(20), "one is still being written"
    assert folder.newest() == -1
    may_write.set()
    folder.finish()
    assert folder.due(21), "it was due at 20"
    same(folder.load(10), state_of(10))


def test_a_file_that_was_damaged_anywhere_is_put_aside_and_the_one_before_it_is_used(tmp_path, capsys):
    folder_with(tmp_path, 10, 20)
    good = path_of(tmp_path, 20).read_bytes()
    whole = len(good)
    for damage, words in (
        (good[:5], "does not begin as a checkpoint does"),
        (good[:25], "ends within its header"),
        (good[:100], "ends within its header" if whole > 5000 else "is another|ends within"),
        (good[: whole - 1], "ends within tensor 3 of 4"),
        (good + b"x", "bytes follow its end"),
        (good[:60] + bytes([good[60] ^ 1]) + good[61:], "checksum of its header is another"),
        (good[: whole - 20] + bytes([good[whole - 20] ^ 1]) + good[whole - 19 :], "checksum of tensor . of 4 is another"),
    ):
        path_of(tmp_path, 20).write_bytes(damage)
        folder = checkpoints.Checkpoints(tmp_path, 10, 3, FACTS)
        assert folder.newest() == 20
        assert folder.load(20) is None
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and re.search(words, said) and str(path_of(tmp_path, 20)) in said, said
        assert folder.newest() == 10
        same(folder.load(10), state_of(10))
        assert f"training goes on from step 10, from {path_of(tmp_path, 10)}" in capsys.readouterr().err
        assert path_of(tmp_path, 20).with_suffix(".maypole.damaged").exists()


def test_checkpoints_of_another_training_or_format_are_refused_and_the_difference_is_named(tmp_path):
    folder_with(tmp_path, 10)
    for facts, words in (
        ([FACTS[0], "weight torch.float64 (3, 2)"], "has 'weight torch.float32 (3, 2)' where this one has 'weight torch.float64 (3, 2)'"),
        ([FACTS[0]], "has 'weight torch.float32 (3, 2)' where this one has ''"),
        ([*FACTS, "bias"], "has '' where this one has 'bias'"),
    ):
        with pytest.raises(UsageError, match=re.escape(words)):
            checkpoints.Checkpoints(tmp_path, 10, 3, facts)
    path = path_of(tmp_path, 10)
    path.write_bytes(path.read_bytes().replace(b"maypole-checkpoint 1\n", b"maypole-checkpoint 2\n"))
    with pytest.raises(UsageError, match="has format version 2; this maypole reads version 1"):
        checkpoints.Checkpoints(tmp_path, 10, 3, FACTS)
    for every in ("", "0", "-5", "soon", "0s"):
        with pytest.raises(UsageError, match="checkpoint_every"):
            checkpoints.Checkpoints(tmp_path, every, 3, FACTS)


def test_a_full_disk_is_said_in_one_line_and_leaves_nothing_behind(tmp_path, capsys, monkeypatch):
    folder = folder_with(tmp_path, 10)
    write = checkpoint_file.write

    def fill(path, *_):
        with open(path, "wb") as file:
            file.write(b"some of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_file, "write", fill)
    for step in (20, 30):
        folder.begin(step, state_of(step))
        folder.finish()
    said = capsys.readouterr().err
    assert said == f"maypole: the checkpoint of step 20 cannot be written to {tmp_path}: No space left on device; training goes on\n"
    assert names(tmp_path) == [path_of(tmp_path, 10).name]
    monkeypatch.setattr(checkpoint_file, "write", write)
    folder.begin(40, state_of(40))
    folder.finish()
    assert capsys.readouterr().err == "maypole: checkpoints are written again, that of step 40 first\n"
    assert names(tmp_path) == [path_of(tmp_path, step).name for step in (10, 40)]


def test_a_folder_that_vanished_or_cannot_be_read_costs_lines_and_not_the_training(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "kept"
    kept = folder_with(folder, 10, keep=2)

    def failing(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(checkpoint_file, "read", failing)
    assert kept.load(10) is None and kept.newest() == -1
    assert "is damaged" in capsys.readouterr().err
    shutil.rmtree(folder)
    assert kept.newest() == -1
    kept.begin(20, state_of(20))
    kept.finish()
    assert "the checkpoint of step 20 cannot be written" in capsys.readouterr().err


def test_what_a_worker_left_that_died_while_it_wrote_goes_with_the_next_checkpoint(tmp_path):
    (tmp_path / "checkpoint-000000000007.maypole.partial-host-1").write_bytes(b"half")
    folder_with(tmp_path, 10)
    assert names(tmp_path) == [path_of(tmp_path, 10).name]


def options(folder, every):
    return ["--checkpoint-dir", folder / "kept", "--checkpoint-every", every]


def test_a_run_whose_workers_are_all_lost_goes_on_from_its_checkpoint(tmp_path):
    eighth = str(path_of(tmp_path / "kept", 8))
    faults = [{"worker": worker, "step": 10, "where": "forward", "do": "kill", "after": eighth} for worker in range(2)]
    with ElasticRun(tmp_path, start=2, retries=3, faults=faults, options=options(tmp_path, 4), batch_norm=True) as run:
        output = run.finish()
    assert "all workers are lost; new ones go on from the last checkpoint" in output
    assert re.search("training goes on from step 8, from", output), output
    assert "2 workers lost" in output
    resumed = [line for lines in lines_of(tmp_path, "ledger").values() for line in lines if line["how"] == "resumed"]
    assert [line["step"] for line in resumed] == [8]
    check_ledgers(tmp_path)
    check_digests(tmp_path)
    assert len(names(tmp_path / "kept")) == 3


def test_without_a_checkpoint_yet_a_run_whose_workers_are_all_lost_begins_anew(tmp_path):
    faults = [{"worker": 0, "step": 4, "where": "forward", "do": "kill"}]
    with ElasticRun(tmp_path, start=1, retries=1, faults=faults, options=options(tmp_path, "1h")) as run:
        output = run.finish()
    assert "there is no good checkpoint: training begins anew" in output
    check_weights(tmp_path, check_ledgers(tmp_path))


def test_a_later_run_of_another_size_goes_on_where_the_last_one_ended_and_one_that_had_ended_has_nothing_to_do(tmp_path):
    with ElasticRun(tmp_path, start=3, epochs=1, options=options(tmp_path, 3)) as run:
        run.finish()
    with ElasticRun(tmp_path, start=2, epochs=2, options=options(tmp_path, 3)) as run:
        assert "training goes on from step 10" in run.finish()
    for _ in range(2):  # without --elastic, and once more when all is done
        command = [PROGRAM, "run", "-n", "1", *options(tmp_path, "10min"), "--", *script(tmp_path, {"epochs": 3})]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=LIMIT_S, env=environment())
        assert done.returncode == 0, done
    assert "training goes on from step 30" in done.stderr
    check_weights(tmp_path, check_ledgers(tmp_path))


def test_options_of_checkpoints_that_cannot_be_are_refused_in_a_line(tmp_path):
    for arguments, words in (
        (["--checkpoint-every", "5"], "--checkpoint-every needs --checkpoint-dir"),
        (["--checkpoint-keep", "5"], "--checkpoint-keep needs --checkpoint-dir"),
        (["--checkpoint-dir", tmp_path, "--checkpoint-every", "0"], "'0' is neither a number of steps nor a duration above zero"),
        (["--checkpoint-dir", tmp_path, "--checkpoint-every", "soon"], "'soon' is neither a number of steps nor a duration above zero"),
        (["--checkpoint-dir", tmp_path, "--checkpoint-keep", "0"], "--checkpoint-keep"),
    ):
        refused = subprocess.run([PROGRAM, "run", *map(str, arguments), "--", "true"], capture_output=True, text=True, timeout=LIMIT_S)
        assert refused.returncode == 2 and words in refused.stderr and refused.stderr.count("\n") == 1, refused
