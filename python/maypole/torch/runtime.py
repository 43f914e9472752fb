# SPDX-License-Identifier: Apache-2.0
"""The process's place in the job, from init() to the last line of the process."""

import atexit
import collections
import dataclasses
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from typing import Any

import torch

from maypole import _core
from maypole.errors import ClosedError, UsageError
from maypole.torch import elastic_seat
from maypole.torch.apart import ApartWatch

BACKENDS = ("native", "c10d")
_OLDEST_TORCH = (2, 4)


@dataclasses.dataclass
class Runtime:
    rank: int
    size: int
    local_rank: int
    environment: Any  # what the launcher said
    backend: str = "native"
    engine: Any = None  # None in a world of one
    transport: Any = None
    apart: Any = None  # watches for optimizers without a DistributedOptimizer; None in a world of one, or an elastic one
    reports: list = dataclasses.field(default_factory=list)  # functions, one a DistributedOptimizer, in order of creation
    process: int = dataclasses.field(default_factory=os.getpid)
    failed: bool = False


_runtime: Runtime | None = None


class IterationClock:
    """The report of a world of one, which has no engine to measure it."""

    def __init__(self, schedule, update):
        self._schedule = schedule
        self._update = update
        self._last = None
        self._durations = collections.deque(maxlen=1000)

    def tick(self):
        now = time.perf_counter()
        if self._last is not None:
            self._durations.append(now - self._last)
        self._last = now

    def report(self):
        return {
            **empty_report(self._schedule, self._update),
            "iterations": len(self._durations),
            "iteration_s": statistics.median(self._durations) if self._durations else 0.0,
        }


def empty_report(schedule, update):
    """The fields of a report, before anything was measured."""
    figures = ("iteration_s", "forward_s", "backward_s", "reduce_scatter_s", "all_gather_s", "communication_s", "exposed_s", "bound_s")
    return {
        **dict.fromkeys(figures, 0.0),
        "iterations": 0,
        "schedule": schedule,
        "update": update,
        "world_size": size(),
        "fusion": "",
        "groups": [],
    }


def init(backend=None, timeout=None):
    """Joins the job that started this process; without one, this process is a world of its own.

    backend: "native" (our ring; the default) or "c10d" (a torch process group, made here if there is none).
    timeout: seconds for which a live but busy peer may keep this rank waiting (default MAYPOLE_TIMEOUT, or 30 minutes).
    MAYPOLE_BACKEND, which `maypole run --backend` sets, overrides what a script says. A second call changes nothing.
    """
    global _runtime
    if _runtime is not None:
        return
    _check_torch()
    environment = _core.read_environment()
    backend = environment.backend or backend or "native"
    if backend not in BACKENDS:
        raise UsageError(f"there is no backend '{backend}'; there are {' and '.join(BACKENDS)}")
    place = Runtime(environment.rank, environment.num_ranks, environment.local_rank, environment)
    seat = elastic_seat.take_seat(environment)
    # Of the daemon's jobs that may have more or fewer workers those without our ring keep the number they started with.
    if seat is not None and not (backend == "c10d" and "MAYPOLE_ELASTIC_OPTIONAL" in os.environ):
        _join_elastic(place, seat, backend, timeout)
    elif place.size > 1:
        place.apart = ApartWatch(place.rank, place.size, backend)
        if backend == "c10d":
            from maypole.torch import c10d

            place.engine, place.transport = c10d.start(environment, timeout)
        else:
            from maypole.torch import native

            place.engine, place.transport = native.start(environment, timeout)
    place.backend = backend
    _runtime = place
    _keep_sockets_of_children(environment.report_directory)
    atexit.register(_finish)
    if place.size > 1 or seat is not None:
        os.register_at_fork(after_in_child=_close_in_child)
        _announce_failures()


def _join_elastic(place, seat, backend, timeout):
    """Founders form the first ring; a newcomer is a world of one until its loop finds it a place."""
    if backend != "native":
        raise UsageError(f"an elastic run needs the native back end, not '{backend}'")
    place.rank, place.size, place.local_rank = seat.number, 1, 0

    def form(environment, rank, size):
        elastic_seat.leave_ring(place, "another one follows")
        elastic_seat.form_ring(place, environment, rank, size, timeout)
        return 0, 0.0

    if seat.is_founder:
        seat.found(form)


def current():
    if _runtime is None:
        raise UsageError("call maypole.init() first")
    if _runtime.process != os.getpid():
        raise ClosedError("this process was forked from a worker and is not a member of the job; communicate from the worker itself")
    return _runtime


def rank():
    """This process's rank in the job, from 0."""
    return current().rank


def size():
    """Number of ranks in the job."""
    return current().size


def local_rank():
    """This process's number among the job's processes on this host."""
    return current().local_rank


def transport():
    return current().transport


def _check_torch():
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdecimal())
    missing = [
        name
        for name, present in (
            ("Tensor.register_post_accumulate_grad_hook", hasattr(torch.Tensor, "register_post_accumulate_grad_hook")),
            ("DisableTorchFunctionSubclass", hasattr(torch._C, "DisableTorchFunctionSubclass")),
            ("queue_callback", hasattr(torch.autograd.Variable._execution_engine, "queue_callback")),
            ("current_graph_task_id", hasattr(torch._C, "_current_graph_task_id")),
        )
        if not present
    ]
    if version < _OLDEST_TORCH or missing:
        oldest = ".".join(map(str, _OLDEST_TORCH))
        lacks = f" and lacks {', '.join(missing)}" if missing else ""
        raise UsageError(f"maypole needs PyTorch {oldest} or newer; this is {torch.__version__}{lacks}")


def _keep_sockets_of_children(report_directory):
    """DataLoader workers that are killed leave their folders of sockets behind; the launcher's folder is removed for them."""
    folder = os.path.dirname(report_directory)
    longest = 70  # a socket's whole name has at most 107 bytes
    if folder and len(os.fsencode(folder)) <= longest and os.path.isdir(folder):
        multiprocessing.current_process()._config.setdefault("tempdir", folder)


def _announce_failures():
    """An uncaught exception ends the other ranks too, with this rank's number and error as the reason, before this process is gone."""
    previous = sys.excepthook

    def on_exception(kind, value, trace):
        runtime = _runtime
        if runtime is not None and runtime.process == os.getpid() and not runtime.failed:
            runtime.failed = True
            if runtime.engine is not None:  # between two rings of an elastic run there is none
                error = traceback.format_exception_only(kind, value)[-1].strip().splitlines()[0]
                runtime.engine.abort(f"rank {runtime.rank} is lost: it failed with {error}")
        previous(kind, value, trace)

    sys.excepthook = on_exception


def _close_in_child():
    if _runtime is not None and _runtime.engine is not None:
        _runtime.engine.close_after_fork()


def _finish():
    """Leaves the report where the launcher looks for it; the engine ends last."""
    runtime = _runtime
    if runtime is None or runtime.process != os.getpid():
        return
    if runtime.apart is not None and not runtime.failed:
        runtime.apart.end()
    reports = [report() for report in runtime.reports]
    folder = runtime.environment.report_directory
    if folder and reports:
        try:
            with open(os.path.join(folder, f"rank-{runtime.rank}.json"), "w", encoding="utf-8") as file:
                # The launcher's table is about the model that communicates most; the others are beside it.
                largest = max(reports, key=lambda report: sum(group["bytes"] for group in report["groups"]))
                json.dump({**largest, "rank": runtime.rank, "models": reports}, file)
        except OSError as error:
            _complain(f"the report was not written: {error}")
    if runtime.engine is None:
        return
    folder = runtime.environment.timeline_directory
    try:
        runtime.engine.finalize(os.path.join(folder, f"rank-{runtime.rank}.json") if folder else "")
    except Exception as error:
        if not runtime.failed:
            _complain(f"at the end: {error}")


def _complain(text):
    print(f"maypole: rank {_runtime.rank}: {text}", file=sys.stderr, flush=True)
