# SPDX-License-Identifier: Apache-2.0
"""Maypole: data-parallel training that hides communication behind both passes. The PyTorch front end is `maypole.torch`."""

from maypole.errors import (
    AuthenticationError,
    ClosedError,
    MaypoleError,
    MismatchError,
    PeerLostError,
    TimeoutError,
    UsageError,
)

__version__ = "0.1.0"


def __getattr__(name):
    if name in ("init", "DistributedOptimizer", "DistributedSampler"):
        raise AttributeError(f"maypole.{name} is part of the PyTorch front end: write `import maypole.torch as maypole`")
    raise AttributeError(f"module 'maypole' has no attribute '{name}'")


__all__ = [
    "AuthenticationError",
    "ClosedError",
    "MaypoleError",
    "MismatchError",
    "PeerLostError",
    "TimeoutError",
    "UsageError",
]
