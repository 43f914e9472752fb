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

__all__ = [
    "AuthenticationError",
    "ClosedError",
    "MaypoleError",
    "MismatchError",
    "PeerLostError",
    "TimeoutError",
    "UsageError",
]
