# SPDX-License-Identifier: Apache-2.0
"""What an elastic run with replicated updates keeps, so that a step can be taken back whose updates run behind step().

Each rank has all of every step that is whole on it. When a ring breaks, a rank rests at the last step that is: the one under way, where all
averages had come (its update is finished without any peer), else the one before it, whose values the engine has kept. What goes with
parameters and moments (scheduler, scaler, options, buffers) is kept here, as it was when a step began.
"""

import contextlib
import copy

from maypole.errors import MaypoleError


class Undo:
    def __init__(self, optimizer):
        self._optimizer = optimizer
        self._records = {}  # step -> what was when it began; the last two
        self._calls = [(0, 0)]  # (steps committed, step() calls of the engine in this ring), the last ones
        self.begun = False

    def ring_begins(self, step):
        rounds = self._optimizer._rounds
        calls = 0
        if rounds is not None and rounds.model is not None:  # it has trained before the loop began
            with contextlib.suppress(MaypoleError):
                rounds.flush()
            calls = rounds.engine.take_back(rounds.model)
        self._records, self._calls, self.begun = {}, [(step, calls)], True

    def step_begins(self, step, record):
        """record: what is to be restored beside parameters and moments; of its own, but for what scheduler and scaler still use."""
        self._records = {**{old: kept for old, kept in self._records.items() if old == step - 1}, step: copy.deepcopy(record)}

    def committed(self, step, updated):
        """updated: whether the engine was called for it."""
        self._calls = [*self._calls[-2:], (step, self._calls[-1][1] + int(updated))]

    def take_back(self):
        """How many of the engine's updates are whole, when nothing moves any more; no peer is asked. None: this rank has no engine's."""
        rounds = self._optimizer._rounds
        if not self.begun or rounds is None or rounds.model is None or not self._optimizer.runs_on:
            return None
        with contextlib.suppress(MaypoleError):  # the ring is broken, or at rest
            rounds.flush()
        return rounds.engine.take_back(rounds.model)

    def is_ahead(self, calls):
        """Whether an update is whole that step() ended in an error instead of saying so."""
        return calls is not None and calls > self._calls[-1][1]

    def step_of(self, calls):
        """The last step that is whole, and its record where it is not the one that this rank had come to."""
        if calls is None or calls == self._calls[-1][1]:
            return self._calls[-1][0], None
        step = max(at for at, count in self._calls if count == calls)
        return step, self._records[step]
