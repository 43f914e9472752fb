# SPDX-License-Identifier: Apache-2.0
"""The back end over a torch process group (gloo, NCCL, ...): the same engine interface, walking the same Schedule objects.

A process group runs collectives in the order in which they were started, and that order must be the same on every rank; so the plan
fixes it: all reduce-scatters from the last group to the first, then all-gathers as the schedule orders them. Nothing is preempted.
Updates are replicated. The caller's thread does all the work; waits happen at the first use of a parameter, as on the ring.
"""

import importlib
import itertools
import os
import time
from collections import deque
from statistics import median

import torch
import torch.distributed as dist

from maypole import _core
from maypole.errors import UsageError
from maypole.torch import updates
from maypole.torch.dtypes import NUMBERS

_DTYPES = {number: dtype for dtype, number in NUMBERS.items()}


def start(environment, timeout):
    """Uses the default process group, or makes one. Returns the engine and the transport of user collectives."""
    made = not dist.is_initialized()
    if made:
        from datetime import timedelta

        os.environ.setdefault("RANK", str(environment.rank))
        os.environ.setdefault("WORLD_SIZE", str(environment.num_ranks))
        limit = environment.timeout_s if timeout is None else float(timeout)
        if torch.cuda.is_available():
            torch.cuda.set_device(environment.local_rank % torch.cuda.device_count())
        # Optimizers import it. Imported while there is a group, it keeps that group beyond destroy_process_group(), with gloo's threads,
        # which then abort the process if they still let go of a tensor while Python ends.
        importlib.import_module("torch._dynamo")
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(seconds=limit))
    device = torch.device("cuda", torch.cuda.current_device()) if "nccl" in dist.get_backend() else torch.device("cpu")
    return C10dEngine(device, made), C10dTransport(device)


def _all_gather(whole, part):
    function = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return function(whole, part, async_op=True)


def _reduce_scatter(part, whole):
    function = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return function(part, whole, async_op=True)


class C10dHandle:
    def __init__(self, work, after=None):
        self._work = work
        self._after = after

    def done(self):
        return self._work.is_completed()

    def wait(self, limit_s=-1.0):
        deadline = time.monotonic() + limit_s
        while limit_s >= 0 and not self._work.is_completed():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        self._work.wait()
        if self._after is not None:
            self._after()
            self._after = None
        return True


class C10dTransport:
    def __init__(self, device):
        self.device = device

    def all_reduce(self, flat, average):
        work = dist.all_reduce(flat, async_op=True)
        return C10dHandle(work, (lambda: flat.div_(dist.get_world_size())) if average else None)

    def all_gather(self, flat):
        own = flat.chunk(dist.get_world_size())[dist.get_rank()].clone()
        return C10dHandle(_all_gather(flat, own))

    def broadcast(self, flat, root):
        return C10dHandle(dist.broadcast(flat, root, async_op=True))

    def barrier(self):
        return self.all_reduce(torch.ones(1, device=self.device), False)


class _Group:
    """One group's way through an iteration; flags as in overlap/schedule.h."""

    def __init__(self, planned, arena, num_ranks, all_reduces):
        self.all_reduces = all_reduces
        self.tensors = planned.tensors
        size = planned.end - planned.begin
        self.memory = arena[planned.begin : planned.end]
        padded = -(-size // num_ranks) * num_ranks
        self.staging = self.memory if padded == size else torch.zeros(padded, dtype=arena.dtype, device=arena.device)
        self.shard = torch.empty(padded // num_ranks, dtype=arena.dtype, device=arena.device)
        self.exposed_s = 0.0
        self.begin()

    def begin(self):
        self.ready = self.reduce_started = self.reduce_done = self.gather_started = self.gather_done = False
        self.work = None

    def progress(self):
        return (self.ready, self.reduce_started, self.reduce_done, self.gather_started, self.gather_done)

    def wait(self):
        begin = time.perf_counter()
        self.work.wait()
        self.exposed_s += time.perf_counter() - begin

    def start_reduce(self):
        self.reduce_started = True
        if self.staging is not self.memory:
            self.staging[: self.memory.numel()].copy_(self.memory)
        self.work = _reduce_scatter(self.shard, self.staging)

    def start_all_reduce(self):
        """Both halves as one operation, for the schedule that runs them back to back (wfbp, what DDP does)."""
        self.reduce_started = self.reduce_done = self.gather_started = True
        self.work = dist.all_reduce(self.memory, async_op=True)

    def finish_reduce(self):
        if self.reduce_done:
            return
        self.wait()
        self.shard.div_(dist.get_world_size())
        self.reduce_done = True

    def start_gather(self):
        self.gather_started = True
        self.work = _all_gather(self.staging, self.shard)

    def finish_gather(self):
        if not self.gather_done:
            self.wait()
            if self.all_reduces:
                self.memory.div_(dist.get_world_size())
            elif self.staging is not self.memory:
                self.memory.copy_(self.staging[: self.memory.numel()])
            self.gather_done = True


class _Model:
    def __init__(self, specs, options, device):
        self.specs = specs
        self.options = options
        self.schedule = _core.make_schedule(options["schedule"])
        sizes = [(count, dtype) for _, count, dtype, _ in specs]
        group_bytes = options["group_bytes"]
        self.plan = _core.plan_fusion(sizes, group_bytes=group_bytes) if group_bytes else _core.plan_fusion(sizes)
        arenas = [(arena.count, _DTYPES[arena.dtype]) for arena in self.plan.arenas]
        parameters, gradients = ([torch.zeros(count, dtype=dtype, device=device) for count, dtype in arenas] for _ in range(2))
        places = self.plan.tensors
        self.parameters = [parameters[place.arena][place.begin : place.end] for place in places]
        self.gradients = [gradients[place.arena][place.begin : place.end] for place in places]
        self.groups = [
            _Group(group, gradients[group.arena], dist.get_world_size(), self.schedule.name == "wfbp") for group in self.plan.groups
        ]
        self.groups_of = [place.groups for place in places]
        self.state = [[torch.zeros_like(p) for _ in range(options["num_state_slots"])] for p in self.parameters]
        self.counts = [0] * len(specs)
        self.arrived = [False] * len(specs)  # in this round
        self.used = [False] * len(specs)  # by any rank, in this iteration
        self.flags = torch.zeros(len(specs), dtype=torch.int32, device=device)
        self.flags_work = None
        self.round_open = False
        self.rounds = 0  # since the last step
        self.step_called = False
        self.edited = False  # averages were shown: used[] is final
        self.scale = 1.0
        self.waiting = []  # parameters whose update waits for a gather
        self.hyper = []
        self.began = None
        self.durations = deque(maxlen=1000)


class C10dEngine:
    takes_addresses = False
    update_kinds = updates.KINDS

    def __init__(self, device, owns_process_group):
        self.device = device
        self._owns_process_group = owns_process_group
        self._numbers = itertools.count()
        self._models = {}

    def check_options(self, options):
        if options["fusion_search"]:
            raise UsageError(
                "the c10d back end does not tune its groups; use group_size='auto', which is its default size there, or the native back end"
            )
        if options["sharded"]:
            raise UsageError("the c10d back end updates replicated; use update='replicated' or the native back end")
        if options["compress_bfloat16"]:
            raise UsageError("the c10d back end does not compress; use compression=None or the native back end")

    def add_model(self, specs, **options):
        model = next(self._numbers)
        self._models[model] = _Model(specs, options, self.device)
        return model

    def remove_model(self, model, _agreed):
        del self._models[model]

    def parameter_tensor(self, model, i):
        return self._models[model].parameters[i]

    def gradient_tensor(self, model, i):
        return self._models[model].gradients[i]

    def state_tensor(self, model, i, slot):
        return self._models[model].state[i][slot]

    def mark_forward(self, model):
        now = time.perf_counter()
        state = self._models[model]
        if state.began is not None:
            state.durations.append(now - state.began)
        state.began = now

    def mark_backward(self, model):
        """Only the ring's engine tells the passes apart."""

    # --- one iteration ---

    def notes_first_use(self, _model):
        return False

    def gradient_ready(self, model, i, _address):
        state = self._models[model]
        if not state.round_open:
            self._begin_round(state)
        state.arrived[i] = True
        self._advance(state)

    def _begin_round(self, state):
        self._finish(state)
        state.round_open = True
        state.step_called = state.edited = False
        for group in state.groups:
            group.begin()
        state.arrived = [False] * len(state.specs)
        if state.rounds == 0:
            state.flags.zero_()
            state.scale = 1.0
        else:
            state.flags.copy_(torch.tensor(state.used, dtype=torch.int32))

    def _advance(self, state, backward_done=False):
        for group in state.groups:
            group.ready = group.ready or all(state.arrived[i] for i in group.tensors)
        while True:
            progress = [group.progress() for group in state.groups]
            actions = state.schedule.next(progress, backward_done, state.step_called, False)
            if not actions:
                return
            for phase, g in actions:
                if state.groups[g].all_reduces:
                    state.groups[g].start_all_reduce()
                elif phase == "reduce_scatter":
                    state.groups[g].start_reduce()
                else:
                    state.groups[g].start_gather()

    def end_backward(self, model):
        state = self._models[model]
        if not state.round_open:
            return
        for i, arrived in enumerate(state.arrived):
            if arrived:
                state.flags[i] = 1
            elif state.rounds == 0:
                state.gradients[i].zero_()
        state.arrived = [True] * len(state.specs)
        self._advance(state, backward_done=True)
        state.flags_work = dist.all_reduce(state.flags, async_op=True)
        state.round_open = False
        state.rounds += 1

    def _finish_reduces(self, state):
        if state.flags_work is None:
            return
        for group in reversed(state.groups):
            group.finish_reduce()
        state.flags_work.wait()
        state.flags_work = None
        state.used = [flag > 0 for flag in state.flags.tolist()]

    def _gather(self, state):
        self._finish_reduces(state)
        state.step_called = True
        self._advance(state, backward_done=True)

    def synchronize(self, model):
        state = self._models[model]
        self.end_backward(model)
        if state.rounds == 0:
            return
        self._gather(state)
        for group in state.groups:
            group.finish_gather()
        if state.scale != 1.0:
            for gradient in state.gradients:
                gradient.mul_(state.scale)
            state.scale = 1.0
        state.edited = True

    def used(self, model, i):
        return self._models[model].used[i]

    def set_used(self, model, i, used):
        self._models[model].used[i] = used

    def gradient_norm(self, model, norm_type):
        state = self._models[model]
        self._finish_reduces(state)
        infinite = norm_type == float("inf")
        norms = [torch.linalg.vector_norm(group.shard, norm_type, dtype=torch.float64) for group in state.groups]
        total = torch.stack(norms).max() if infinite else torch.stack(norms).pow(norm_type).sum()
        dist.all_reduce(total, dist.ReduceOp.MAX if infinite else dist.ReduceOp.SUM)
        return total.item() * abs(state.scale) if infinite else total.item() ** (1.0 / norm_type) * abs(state.scale)

    def scale_gradients(self, model, factor):
        self._models[model].scale *= factor

    def discard_gradients(self, model):
        state = self._models[model]
        self.end_backward(model)
        self._finish_reduces(state)
        state.rounds = 0

    def step(self, model, hyper, skip=False):
        state = self._models[model]
        if state.rounds == 0 and not state.round_open:
            self._begin_round(state)
        self.end_backward(model)
        self._gather(state)
        state.rounds = 0
        if skip or state.options["optimizer"] == "none":
            self._finish(state)
            return
        state.hyper = hyper
        state.waiting = [i for i, used in enumerate(state.used) if used]
        for i in state.waiting:
            state.counts[i] += 1
        if state.schedule.gradients_after_backward:
            self._finish(state)

    def _finish(self, state):
        """Ends what the last step left in motion."""
        for group in state.groups:
            if group.gather_started:
                group.finish_gather()
        self._update(state, state.waiting)
        state.waiting = []

    def before_use(self, model, i):
        state = self._models[model]
        for g in state.groups_of[i]:
            if state.groups[g].gather_started:
                state.groups[g].finish_gather()
        # All parameters whose groups are here are updated together.
        here = [j for j in state.waiting if j == i or all(state.groups[g].gather_done for g in state.groups_of[j])]
        state.waiting = [j for j in state.waiting if j not in set(here)]
        self._update(state, here)

    def in_motion(self, model, i):
        return i in self._models[model].waiting

    def _update(self, state, indices):
        for group in {state.specs[i][3] for i in indices}:
            chosen = [i for i in indices if state.specs[i][3] == group]
            gradients = [state.gradients[i] for i in chosen]
            if state.scale != 1.0:
                gradients = [gradient * state.scale for gradient in gradients]
            updates.update(
                state.options["optimizer"],
                state.hyper[group],
                [state.parameters[i] for i in chosen],
                gradients,
                [state.state[i] for i in chosen],
                [state.counts[i] for i in chosen],
            )

    def flush(self, model):
        state = self._models[model]
        if state.waiting:
            self._finish(state)

    # --- state ---

    def update_count(self, model, i):
        return self._models[model].counts[i]

    def set_update_count(self, model, i, count):
        self._models[model].counts[i] = count

    def write_state_tensor(self, model, i, slot, values):
        self._models[model].state[i][slot].copy_(values.as_strided((values.numel(),), (1,)))

    # --- end ---

    def report(self, model):
        state = self._models[model]
        steps = max(1, len(state.durations))
        exposed = sum(group.exposed_s for group in state.groups) / steps
        iteration = median(state.durations) if state.durations else 0.0
        groups = [
            {
                "bytes": group.memory.numel() * group.memory.element_size(),
                "reduce_scatter_s": 0.0,
                "all_gather_s": 0.0,
                "exposed_s": group.exposed_s / steps,
            }
            for group in state.groups
        ]
        return {
            "iterations": len(state.durations),
            "iteration_s": iteration,
            **dict.fromkeys(("forward_s", "backward_s", "reduce_scatter_s", "all_gather_s", "communication_s", "bound_s"), 0.0),
            "exposed_s": exposed,
            "schedule": state.options["schedule"],
            "update": "replicated",
            "world_size": dist.get_world_size(),
            "groups": groups,
        }

    def finalize(self, timeline_file):
        for state in self._models.values():
            self._finish(state)
        if self._owns_process_group:
            dist.destroy_process_group()
        if timeline_file:
            raise UsageError("the timeline was not written: only the native back end records one")

    def abort(self, reason):
        """Peers learn of the end of this process from the process group itself."""

    def close_after_fork(self):
        """A process group has no call for it."""
