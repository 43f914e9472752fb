# SPDX-License-Identifier: Apache-2.0
"""The PyTorch front end.

import maypole.torch as maypole
maypole.init()
optimizer = maypole.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-3), model)
sampler = maypole.DistributedSampler(dataset)
"""

import importlib.util
import sys

# Before anything else of this package, all of which needs it. A folder `torch` without PyTorch in it is found as well, and is empty.
if (_found := importlib.util.find_spec("torch")) is None or _found.origin is None:
    raise ImportError(f"maypole.torch needs PyTorch, which {sys.executable} does not have: pip install torch")

from maypole.errors import (
    AuthenticationError,
    ClosedError,
    MaypoleError,
    MismatchError,
    PeerLostError,
    TimeoutError,
    UsageError,
)
from maypole.torch import elastic
from maypole.torch.collectives import all_gather, all_reduce, barrier, broadcast, broadcast_object
from maypole.torch.optimizer import DistributedOptimizer
from maypole.torch.runtime import init, local_rank, rank, size
from maypole.torch.sampler import DistributedSampler

__all__ = [
    "AuthenticationError",
    "ClosedError",
    "DistributedOptimizer",
    "DistributedSampler",
    "MaypoleError",
    "MismatchError",
    "PeerLostError",
    "TimeoutError",
    "UsageError",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object",
    "elastic",
    "init",
    "local_rank",
    "rank",
    "size",
]
