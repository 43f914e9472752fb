# SPDX-License-Identifier: Apache-2.0
"""This process's seat in an elastic run: how it gets a place in an epoch, and how it passes from one epoch to the next."""

import os

from maypole import _core
from maypole.errors import ClosedError, PeerLostError, TimeoutError, UsageError

# What says that the ring is broken, and not that the script is wrong.
BROKEN = (PeerLostError, TimeoutError, ClosedError)

_Kind = _core.ReportKind
_seat = None


def seat():
    """The seat of this process, or None where the run is not elastic."""
    return _seat


def keeps_previous():
    """Whether what updates replace is kept until their step is done everywhere (maypole run --no-undo)."""
    return _seat is not None and os.environ.get("MAYPOLE_ELASTIC_UNDO", "1") != "0"


def take_seat(environment):
    """Looks whether the launcher gave this process a control socket."""
    global _seat
    if "MAYPOLE_ELASTIC_FD" in os.environ:
        _seat = Seat(environment)
    return _seat


class Seat:
    def __init__(self, environment):
        control = int(os.environ.pop("MAYPOLE_ELASTIC_FD"))  # nobody that this process starts shall have it
        self.listener = int(os.environ["MAYPOLE_RENDEZVOUS_FD"])
        for fd in (control, self.listener):
            os.set_inheritable(fd, False)
        self.number = int(os.environ["RANK"])
        self.min_workers, founders, self.max_workers = map(int, os.environ["MAYPOLE_ELASTIC_WORKERS"].split(":"))
        self.is_founder = self.number < founders
        self._environment = environment
        # Who meets has just been stopped, and is here at once or is lost.
        self._meeting_s = max(4.0, 2 * environment.heartbeat_s)
        self._link = _core.open_control_link(control, environment.heartbeat_s)
        self._has_loop = False
        self.epoch = 0
        self.hosts = []  # [rank] of the epoch
        self.addresses = []  # [rank] of the epoch: where it listens for who fetches its state
        self.ring = None  # the environment of the epoch's ring
        self._orders = []

    def found(self, form):
        """A founder waits for the others and forms the first ring."""
        self._report(_Kind.READY)
        self._enter_next(form, 0)

    def begin_loop(self, what, step, form):
        """From here on this process can change epochs. `what`: lines that say what is trained. A newcomer waits for its place."""
        if self._has_loop:
            raise UsageError("an elastic run has one elastic.Loop: give that one all epochs")
        self._has_loop = True
        if self.is_founder:
            self._report(_Kind.LOOPING, text=what)
        else:
            self._report(_Kind.READY, text=what)
            self._enter_next(form, step)

    def asked_to_stop(self):
        """Whether this epoch shall end. Does not block."""
        while (order := self._link.take()) is not None:
            self._orders.append(order)
        return any(order.kind == _core.OrderKind.STOP and order.epoch == self.epoch for order in self._orders)

    def change(self, form, step, reason):
        """Passes to the next epoch; reason: why this one broke, "" where it was asked to stop. Leaves the process where it has no place."""
        self._report(_Kind.STOPPED, step, text=reason)
        self._enter_next(form, step)

    def finish(self, form, step):
        """The loop has come to its end. True: everybody's has. False: the others need this worker's state, in the next epoch."""
        self._report(_Kind.FINISHED, step)
        return not self._enter_next(form, step)

    def _enter_next(self, form, step):
        """True: this process is a member of a new epoch. False: the loops of all have ended."""
        while True:
            order = self._next_order()
            if order.kind == _core.OrderKind.END:
                return False
            if order.kind == _core.OrderKind.REFUSE:
                raise UsageError(order.text)
            if order.kind != _core.OrderKind.ANNOUNCE:
                continue
            rank = order.rank_of(self.number)
            if rank is None:
                raise SystemExit(0)
            self.epoch, self.hosts, self.addresses = order.epoch, order.hosts, order.addresses
            try:
                environment = _core.ring_of(self._environment, order, rank, self.listener, self._meeting_s)
                self.ring = environment
                step, idle_s = form(environment, rank, order.size)
            except BROKEN as error:
                self._report(_Kind.STOPPED, step, text=str(error) or type(error).__name__)
                continue
            self._report(_Kind.ENTERED, step, seconds=idle_s)
            return True

    def _next_order(self):
        if self._orders:
            return self._orders.pop(0)
        return self._link.wait()

    def _report(self, kind, step=0, seconds=0.0, text=""):
        self._link.report(kind, self.epoch, step, seconds, text)


def form_ring(place, environment, rank, size, timeout):
    """Makes this process rank `rank` of a new ring. A world of one has no ring."""
    from maypole.torch import native

    place.rank, place.size, place.local_rank = rank, size, environment.local_rank
    place.reports.clear()  # they were about another ring
    if size > 1:
        place.engine, place.transport = native.start(environment, timeout)


def leave_ring(place, reason):
    """Ends this process's part of the ring. reason: why it is broken, "" for a goodbye, which needs every other rank's."""
    engine, transport = place.engine, place.transport
    if engine is None:
        return
    try:
        if not reason:
            engine.say_goodbye()
    finally:
        place.engine = place.transport = None
        in_motion = transport.close()
        engine.close()
        del in_motion
