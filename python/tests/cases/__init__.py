# SPDX-License-Identifier: Apache-2.0
"""Cases that run inside a job. Each is a function of a Job; it trains, compares and asserts, on every rank."""

import contextlib
import dataclasses

import maypole.torch as maypole
import torch
from torch import nn
from torch.nn import functional as F

CASES = []


def case(function):
    """Registers a case; its docstring is what it promises."""
    CASES.append(function)
    return function


@dataclasses.dataclass
class Job:
    schedule: str
    update: str
    backend: str

    @property
    def sharded(self):
        return self.update == "sharded"

    def distribute(self, optimizer, model, **options):
        options.setdefault("group_size", "4KB")
        return maypole.DistributedOptimizer(optimizer, model, **{"schedule": self.schedule, "update": self.update, **options})

    def compare(self, build, make_optimizer, loop, tolerance=1e-10, **options):
        """Runs the same loop in plain torch on whole batches, and distributed on this rank's share: the weights must be equal."""
        torch.manual_seed(0)
        reference = build()
        loop(reference, make_optimizer(reference), lambda batch: batch)
        torch.manual_seed(0 if maypole.rank() == 0 else 17)  # rank 0's start is everyone's
        model = build()
        optimizer = self.distribute(make_optimizer(model), model, **options)
        loop(model, optimizer, share)
        expect_equal(model, reference, tolerance)
        return model, optimizer, reference


def share(batch):
    """This rank's part of a batch; parts are equally large."""
    return batch[maypole.rank() :: maypole.size()]


def expect_equal(model, reference, tolerance=1e-10):
    for (name, actual), expected in zip(model.named_parameters(), reference.parameters()):
        expect_close(actual, expected, tolerance, name)


def expect_close(actual, expected, tolerance=1e-10, name="tensor"):
    actual, expected = actual.detach().double(), expected.detach().double()
    scale = expected.abs().max().item() + 1e-30
    error = (actual - expected).abs().max().item() / scale if actual.numel() else 0.0
    assert error <= tolerance, f"{name} is off by {error:.3g} of its largest value"


@contextlib.contextmanager
def expect_error(*words, kind=maypole.MaypoleError):
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"'{error}' does not say '{word}'"
    else:
        raise AssertionError(f"no error that says {words}")


def batches(count, size=12, features=8, dtype=torch.float64, seed=1):
    """The same random batches on every rank: inputs and classes."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, features, generator=generator, dtype=dtype), torch.randint(3, (size,), generator=generator))
        for _ in range(count)
    ]


def mlp(dtype=torch.float64, width=40):
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3)).to(dtype)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss_of(model, part, batch):
    inputs, classes = batch
    return F.cross_entropy(model(part(inputs)), part(classes))


def simple_loop(model, optimizer, part, steps=6, dtype=torch.float64):
    for batch in batches(steps, dtype=dtype):
        optimizer.zero_grad()
        loss_of(model, part, batch).backward()
        optimizer.step()
