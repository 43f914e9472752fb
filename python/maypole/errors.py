# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, by who has to act. The binding raises these too."""


class MaypoleError(RuntimeError):
    """Base of all errors of Maypole."""


class PeerLostError(MaypoleError):
    """A peer died, was cut off or failed; the text names its rank and, where known, its own error."""


class TimeoutError(MaypoleError):
    """A live peer kept this rank waiting longer than MAYPOLE_TIMEOUT; the text names it."""


class MismatchError(MaypoleError):
    """Ranks disagree: on the model, on sizes, on the order of calls."""


class UsageError(MaypoleError):
    """The call cannot mean anything right; the text says what to do."""


class AuthenticationError(MaypoleError):
    """A peer could not prove the job's secret."""


class ClosedError(MaypoleError):
    """The runtime was shut down, or this is a forked child of a worker."""
