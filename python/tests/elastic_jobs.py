# SPDX-License-Identifier: Apache-2.0
"""Runs of python/tests/elastic_train.py, and what is true of every one of them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import elastic_train
import torch
from jobs import LIMIT_S, PROGRAM, ROOT

HERE = Path(__file__).parent


class ElasticRun:
    """A run under `maypole run --elastic`, in a folder of its own."""

    def __init__(
        self, folder, workers="1:8", start=2, heartbeat="30s", retries=0, options=(), program="elastic_train.py", temporary=None, **settings
    ):
        self.folder = folder
        self.name = f"test-{os.getpid()}-{time.monotonic_ns()}"
        command = [PROGRAM, "run", "--elastic", "--workers", workers, "-n", str(start), "--name", self.name]
        command += ["--retries", str(retries), "--heartbeat", heartbeat, *map(str, options), "--", *script(folder, settings, program)]
        variables = environment() | ({} if temporary is None else {"TMPDIR": str(temporary)})
        self.log = folder / "output"
        with self.log.open("a") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, text=True, env=variables)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=LIMIT_S)

    @property
    def output(self):
        return self.log.read_text()

    def wait_for_step(self, step):
        """Until some worker has begun this step."""
        deadline = time.monotonic() + LIMIT_S
        while not any(line["step"] >= step for lines in self.digests().values() for line in lines):
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, f"step {step} did not come"
            time.sleep(0.01)

    def resize(self, *arguments):
        return subprocess.run([PROGRAM, "resize", self.name, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S)

    def begin_resize(self, *arguments):
        command = [PROGRAM, "resize", self.name, *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def go(self):
        """Lets a script go on that waits in the step `hold_at`."""
        (self.folder / "go").touch()

    def finish(self, code=0, end=False):
        """end: the script trains until it is told that this is enough."""
        if end:
            (self.folder / "end").touch()
        self.process.wait(timeout=LIMIT_S)
        assert self.process.returncode == code, self.output
        return self.output

    def digests(self):
        return lines_of(self.folder, "digests")


def environment():
    path = os.pathsep.join([str(ROOT / "python"), str(HERE), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MAYPOLE_TUNING_CACHE": "off"}


def script(folder, settings, program="elastic_train.py"):
    return [sys.executable, str(HERE / program), str(folder), json.dumps(settings)]


def lines_of(folder, kind):
    """What each worker wrote, by its number; a line that is being written is left out."""
    result = {}
    for path in folder.glob(f"{kind}-*.jsonl"):
        text = path.read_text()
        result[int(path.stem.split("-")[1])] = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return result


def check_ledgers(folder, samples=200, num_steps=30):
    """Every step is one batch for all who know of it, made by one number of workers; no sample is lost or repeated in an epoch. Returns the
    batches."""
    steps = {}
    for line in lasting(folder):
        steps.setdefault(line["step"], []).append(line)
    assert sorted(steps) == list(range(len(steps)))
    batches = []
    for step in range(len(steps)):
        (made,) = {tuple(line["samples"]) for line in steps[step]}
        done = [line for line in steps[step] if line["how"] == "done"]
        assert done, f"nobody has finished step {step}"
        assert len({(line["epoch"], line["workers"]) for line in done}) == 1, f"step {step} has several divisors"
        shares = [i for line in done for i in line["share"]]
        assert len(set(shares)) == len(shares) and set(shares) <= set(made)
        batches.append(list(made))
    assert num_steps is None or len(steps) == num_steps
    trained = sum(batches, [])
    for begin in range(0, len(trained), samples):
        epoch = trained[begin : begin + samples]
        assert len(set(epoch)) == len(epoch) and set(epoch) <= set(range(samples))
        assert len(epoch) == samples or begin + samples > len(trained)
    return batches


def lasting(folder):
    """The lines of steps that count. A step that was lost with all who had made it was made again: in a later epoch, or from a checkpoint
    on, in a later life. Of such a worker that line is among its last."""
    ledgers = lines_of(folder, "ledger")
    undone = [line for lines in ledgers.values() for line in lines if line["how"] == "undone"]

    def counts(line):
        """Whether it was not taken back, with all steps that followed, by those who had parted from it."""
        taken_back = any(line["life"] == cut["life"] and line["step"] >= cut["step"] and line["epoch"] < cut["epoch"] for cut in undone)
        return line["how"] != "undone" and not taken_back

    ledgers = {worker: [line for line in lines if counts(line)] for worker, lines in ledgers.items()}
    resumed = {line["life"]: line["step"] for lines in ledgers.values() for line in lines if line["how"] == "resumed"}
    newest = {}
    for lines in ledgers.values():
        for line in lines:
            if line["how"] == "done":
                newest[line["step"]] = max(newest.get(line["step"], (0, 0)), (line["life"], line["epoch"]))
    result = []
    for lines in ledgers.values():
        last = None  # (life, step)
        lost = False
        for line in lines:
            if line["how"] == "resumed":
                continue
            if last is not None and last[0] == line["life"]:
                assert line["step"] == last[1] + 1, "a worker's steps follow each other"
                assert not lost, "a worker whose step was made again without it goes on"
            last = line["life"], line["step"]
            here = line["life"], line["epoch"]
            if here >= newest[line["step"]]:
                result.append(line)
            elif line["how"] == "done":
                life = newest[line["step"]][0]
                assert life == line["life"] or min(s for at, s in resumed.items() if at > line["life"]) <= line["step"], "lost unsaid"
                lost = life == line["life"]
    return result


def check_digests(folder, by=("step",)):
    """Before each step all who take part in it hold the same bits: parameters, buffers, moments, scheduler. by: what makes a step the same
    one; those that were taken back, and made again by fewer workers, are rounded differently."""
    steps = {}
    for lines in lines_of(folder, "digests").values():
        for line in lines:
            steps.setdefault(tuple(line[name] for name in by), set()).add(line["digest"])
    assert [step for step, found in steps.items() if len(found) > 1] == []


def sizes(folder):
    """The numbers of workers that training went through, in order."""
    done = [line for lines in lines_of(folder, "ledger").values() for line in lines if line["how"] == "done"]
    by_step = {line["step"]: line["workers"] for line in sorted(done, key=lambda line: line["epoch"])}
    result = []
    for step in sorted(by_step):
        if not result or result[-1] != by_step[step]:
            result.append(by_step[step])
    return result


def check_weights(folder, batches, **settings):
    """The weights equal those of plain torch on the same batches within rounding."""
    expected = elastic_train.undisturbed(settings, batches)
    found = torch.load(folder / "weights.pt")
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-12)
