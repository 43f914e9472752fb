# SPDX-License-Identifier: Apache-2.0
"""Notices a script that forgot a DistributedOptimizer: its ranks would train apart, each on its own data, and nothing would say so.

Steps of torch optimizers that no DistributedOptimizer holds are counted. A script that averages by itself sends at least as many numbers
as such an optimizer has, by Maypole's collectives or by a process group of its own; it is left alone.
"""

import sys
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

_SURELY = 20  # steps


class ApartWatch:
    def __init__(self, rank, num_ranks, backend):
        self.sent = 0  # elements that the script's own collectives moved
        self._rank, self._num_ranks = rank, num_ranks
        self._known = weakref.WeakSet()  # optimizers that a DistributedOptimizer holds, and these themselves
        self._steps = weakref.WeakKeyDictionary()  # of each other one
        self._group_is_ours = backend == "c10d" and not _has_group()
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def know(self, *optimizers):
        """These are the business of a DistributedOptimizer."""
        self._known.update(optimizers)

    def _stepped(self, optimizer, _args, _kwargs):
        if torch.compiler.is_compiling() or optimizer in self._known:
            return
        steps = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        if steps == _SURELY:
            self.end()

    def end(self):
        """Says what was seen, once."""
        if self._handle is None:
            return
        for optimizer, steps in self._steps.items():
            size = sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
            if optimizer in self._known or self.sent >= size or (_has_group() and not self._group_is_ours):
                continue
            self._handle.remove()
            self._handle = None
            if self._rank == 0:
                name = type(optimizer).__name__
                times = "1 step" if steps == 1 else f"{steps} steps"
                print(
                    f"maypole: {times} of {name} without a maypole.DistributedOptimizer: the {self._num_ranks} workers train apart, each "
                    f"on its own data, and nothing is averaged; write optimizer = maypole.DistributedOptimizer({name}(...), model)",
                    file=sys.stderr,
                    flush=True,
                )
            return


def _has_group():
    return torch.distributed.is_available() and torch.distributed.is_initialized()
