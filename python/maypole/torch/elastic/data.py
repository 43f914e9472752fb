# SPDX-License-Identifier: Apache-2.0
"""Which samples a step trains on: a function of the seed and the step alone, whoever takes part; and this rank's share of them."""

import numbers
import random

import torch
import torch.utils.data

from maypole import _core
from maypole.errors import UsageError

_MASK = (1 << 63) - 1


def mixed(*numbers):
    """One seed from several numbers; each of them changes it (splitmix64's finaliser)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & ((1 << 64) - 1)
        state ^= state >> 31
    return state & _MASK


def seed_step(seed, step, rank):
    """Random numbers of a step, dropout's for one, do not depend on what happened before it."""
    torch.manual_seed(mixed(seed, step, rank))
    random.seed(mixed(seed, step, rank, 1))


def check_options(dataset, batch_size, epochs, seed, loader_options):
    for name in ("batch_sampler", "sampler", "drop_last"):
        if name in loader_options:
            raise UsageError(f"elastic.Loop decides which samples each worker gets; leave {name} out")
    if not hasattr(dataset, "__len__"):
        raise UsageError(f"elastic.Loop takes a data set with a length (map-style), not {type(dataset).__name__}")
    for name, value, least in (("batch_size", batch_size, 1), ("epochs", epochs, 1), ("seed", seed, None)):
        if not isinstance(value, numbers.Integral) or (least is not None and value < least):
            raise UsageError(f"{name} is a whole number{'' if least is None else f' of at least {least}'}, not {value!r}")


class DataPlan:
    """The batches of all epochs of the data, in order, numbered by step."""

    def __init__(self, num_samples, batch_size, epochs, seed, shuffle, max_workers):
        self._division = _core.DataDivision.make(num_samples, batch_size, max_workers)
        self._num_samples = num_samples
        self._seed = seed
        self._shuffle = shuffle
        self._order = None, None  # epoch, its order
        self.steps_per_epoch = self._division.num_batches
        self.num_steps = epochs * self.steps_per_epoch

    def batch(self, step):
        """The indices of the samples of one step."""
        epoch, index = divmod(step, self.steps_per_epoch)
        begin, end = self._division.batch(index)
        return self._order_of(epoch)[begin:end]

    def share(self, step, size, rank):
        """This rank's part of them, and its weight in the average: 1 where all parts are equal."""
        indices = self.batch(step)
        begin, end = _core.share_of(len(indices), size, rank)
        return indices[begin:end], (end - begin) * size / len(indices)

    def _order_of(self, epoch):
        if self._order[0] != epoch:
            if self._shuffle:
                generator = torch.Generator().manual_seed(mixed(self._seed, epoch))
                order = torch.randperm(self._num_samples, generator=generator).tolist()
            else:
                order = list(range(self._num_samples))
            self._order = epoch, order
        return self._order[1]


class _Shares(torch.utils.data.Sampler):
    """A batch sampler: the shares of one rank from a step on."""

    def __init__(self, plan, step, size, rank):
        self._plan, self._step, self._size, self._rank = plan, step, size, rank

    def __iter__(self):
        for step in range(self._step, self._plan.num_steps):
            yield self._plan.share(step, self._size, self._rank)[0]

    def __len__(self):
        return self._plan.num_steps - self._step


def batches(dataset, plan, step, size, rank, loader_options):
    """An iterator over this rank's data from `step` on."""
    return iter(torch.utils.data.DataLoader(dataset, batch_sampler=_Shares(plan, step, size, rank), **loader_options))
