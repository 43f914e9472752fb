# SPDX-License-Identifier: Apache-2.0
"""A training script for the tests of elastic runs. Arguments: FOLDER, and a JSON object of settings.

Each worker leaves in FOLDER: ledger-N.jsonl (what it committed), digests-N.jsonl (a checksum of everything that is trained, before each of
its steps), and weights.pt at the end. Faults are planned by the settings: {"worker", "step", "where", "do"}, each done once, when the
file "after", if it is given, is there. With until_end the script trains until the file `end` appears there.
"""

import json
import os
import signal
import sys
import time
import zlib

import maypole.torch as maypole
import torch
from maypole.torch import state
from maypole.torch.elastic import packing, shards

LIMIT_S = 300
DEFAULTS = {
    "width": 16, "samples": 200, "batch": 20, "epochs": 3, "batch_norm": False, "dropout": False, "optimizer": "adamw",
    "schedule": "weave", "update": "auto", "pause": 0.0, "faults": [], "slow_to_load": [], "late_copies": False, "hold_at": None,
    "until_end": False, "linger": 0.0, "digests": True, "group_size": "auto", "evaluate": [],
}  # fmt: skip


class Squares(torch.utils.data.Dataset):
    """Samples whose number is in them, so that a batch shows which ones it is made of."""

    def __init__(self, size):
        generator = torch.Generator().manual_seed(7)
        self.inputs = torch.randn(size, 6, generator=generator, dtype=torch.float64)
        self.targets = self.inputs.square().sum(1, keepdim=True)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        return self.inputs[i], self.targets[i], i


def make_model(settings):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(6, settings["width"]), torch.nn.Tanh()]
    layers += [torch.nn.BatchNorm1d(settings["width"])] if settings["batch_norm"] else []
    layers += [torch.nn.Dropout(0.1)] if settings["dropout"] else []
    return torch.nn.Sequential(*layers, torch.nn.Linear(settings["width"], 1)).double()


def make_optimizer(settings, model):
    kinds = {"adamw": torch.optim.AdamW, "sgd": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9), "nadam": torch.optim.NAdam}
    return kinds[settings["optimizer"]](model.parameters(), lr=0.01)


def make_scheduler(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)


def undisturbed(settings, batches):
    """The weights of plain torch after these batches, given by the numbers of their samples."""
    settings = {**DEFAULTS, **settings}
    model = make_model(settings)
    optimizer = make_optimizer(settings, model)
    scheduler = make_scheduler(optimizer)
    data = Squares(settings["samples"])
    for batch in batches:
        optimizer.zero_grad()
        (model(data.inputs[batch]) - data.targets[batch]).square().mean().backward()
        optimizer.step()
        scheduler.step()
    return model.state_dict()


def digest(model, optimizer, scheduler):
    text, tensors = packing.pack([model.state_dict(), optimizer.state_dict(), scheduler.state_dict()])
    crc = zlib.crc32(text.encode())
    for tensor in tensors:
        crc = zlib.crc32(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy(), crc)
    return crc


def load_slowly():
    """When a ring forms this rank's engine gets its moments a while after the others'."""
    take = state.EngineState.take

    def late(self):
        time.sleep(0.3)
        take(self)

    state.EngineState.take = late


def copy_late():
    """Copies of shards are under way for some steps."""
    committed, run = shards.Shards.committed, shards._Copying._run
    newest = [0]

    def note(self, step, *arguments):
        newest[0] = step
        committed(self, step, *arguments)

    def late(self, *arguments):
        begun = newest[0]
        while newest[0] < begun + 6 and not self._stopped.wait(0.005):
            pass
        run(self, *arguments)

    shards.Shards.committed, shards._Copying._run = note, late


def main():
    folder, settings = sys.argv[1], json.loads(sys.argv[2])
    settings = {**DEFAULTS, **settings}
    number = int(os.environ.get("RANK", 0))
    if number in settings.get("other_model", []):
        settings["width"] += 1
    torch.set_num_threads(1)
    maypole.init()
    if number in settings["slow_to_load"]:
        load_slowly()
    if settings["late_copies"]:
        copy_late()
    model = make_model(settings)
    if number in settings.get("other_dtype", []):
        model[0].float()
    optimizer = maypole.DistributedOptimizer(
        make_optimizer(settings, model), model, schedule=settings["schedule"], update=settings["update"], group_size=settings["group_size"]
    )
    scheduler = make_scheduler(optimizer)
    loop = maypole.elastic.Loop(
        model, optimizer, Squares(settings["samples"]), settings["batch"], epochs=settings["epochs"], scheduler=scheduler, seed=3,
        ledger=f"{folder}/ledger-{number}.jsonl", copy_budget=1.0,
    )  # fmt: skip

    def maybe_fail(where):
        for k, fault in enumerate(settings["faults"]):
            done = f"{folder}/fault-{k}"
            if fault["worker"] == number and fault["step"] == step and fault["where"] == where and not os.path.exists(done):
                deadline = time.monotonic() + LIMIT_S  # whoever gives the sign may be gone
                while not os.path.exists(fault.get("after", folder)):
                    assert time.monotonic() < deadline, f"{fault['after']} never came"
                    time.sleep(0.005)
                open(done, "w").close()
                if fault["do"] == "cut":
                    maypole.runtime.current().engine.abort("a test cuts the ring")
                else:
                    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[fault["do"]])

    optimizer.register_step_pre_hook(lambda *_: maybe_fail("averaged"))
    model[0].register_forward_hook(lambda *_: maybe_fail("inside"))
    for batch in loop:
        step = loop.step
        with batch as (inputs, targets, numbers):
            assert sorted(numbers.tolist()) == sorted(batch.share)
            if settings["digests"]:  # which bring all to rest that is in motion
                with open(f"{folder}/digests-{number}.jsonl", "a", encoding="utf-8") as file:
                    line = {"step": step, "workers": maypole.size(), "digest": digest(model, optimizer, scheduler)}
                    engine = maypole.runtime.current().engine
                    line["paced"] = engine is not None and ", paced to " in engine.communicator.describe()
                    file.write(json.dumps({**line, "groups": len(optimizer.report()["groups"])}) + "\n")
            while settings["hold_at"] == step and not os.path.exists(f"{folder}/go"):
                time.sleep(0.005)
            ending = settings["until_end"] and maypole.all_reduce(float(os.path.exists(f"{folder}/end")), "sum") > 0
            time.sleep(settings["pause"])
            maybe_fail("forward")
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.register_hook(lambda _: maybe_fail("backward"))
            loss.backward()
            maybe_fail("reduced")
            optimizer.step()
            maybe_fail("stepped")
        if step in settings["evaluate"]:
            with torch.no_grad():
                assert torch.isfinite(model(inputs)).all()
            model.state_dict()
        if ending:
            break
    else:
        assert loop.step == loop.num_steps
    if maypole.rank() == 0:
        torch.save(model.state_dict(), f"{folder}/weights.pt")
    print(f"worker {number} ended as rank {maypole.rank()} of {maypole.size()}", flush=True)
    if maypole.rank() == 0:
        time.sleep(settings["linger"])


if __name__ == "__main__":
    main()
