# SPDX-License-Identifier: Apache-2.0
"""What `maypole profile` measures: when each layer computes, forward and backward, and in which order tensors are first used.

A layer is a module that holds parameters of the optimizer itself. Its forward lasts from its own beginning to that of the next layer, so
what a script does between two layers belongs to the one before; the loss belongs to the last layer's backward. Its backward is the sum of
what passes before each of its gradients is complete. Jobs are profiled under `sync`, where nothing communicates while anything computes.
"""

import contextlib
import functools
import os
import statistics
import sys
import time

import torch

from maypole.torch import inspection
from maypole.torch.forward import tensors_in

_WARM_UP = 5  # pairs of forward and backward
_FEWEST_ELEMENTS, _MOST_ELEMENTS = 1 << 18, 1 << 24  # 1 to 64 MiB of float32, to measure the ring with
_LONG_ENOUGH_S = 0.1


def start(optimizer, model, here):
    """A Profiler where `maypole profile` runs the script; else None."""
    iterations = os.environ.get("MAYPOLE_PROFILE")
    if iterations is None:
        return None
    parameters, names, _ = inspection.collect(optimizer, model)
    ring = functools.partial(measure_ring, here) if here.engine is not None and here.backend == "native" else None
    return Profiler(model, parameters, names, int(iterations), ring)


def measure_ring(here):
    """(workers, alpha_s, beta_s_per_byte) of the ring; collective. What it measured when it formed was short: a link that is shaped lets a
    burst pass at once. Two sizes are timed, of which the larger takes long enough, and the difference counts: what passes as a burst, or
    is paid once, falls out. An all-reduce moves each byte and sums it, as training does."""

    def seconds(elements):
        buffer = torch.zeros(elements)
        here.transport.barrier().wait(-1)
        began = time.perf_counter()
        here.transport.all_reduce(buffer, False).wait(-1)
        took = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
        here.transport.all_reduce(took, True).wait(-1)  # one answer on all ranks, which take the same sizes
        return took.item()

    alpha_s, _ = here.engine.edge_cost
    elements = _FEWEST_ELEMENTS
    while seconds(elements) < _LONG_ENOUGH_S and elements < _MOST_ELEMENTS:
        elements *= 4
    differences = [seconds(elements) - seconds(elements // 4) for _ in range(3)]
    moved = 2 * (here.size - 1) / here.size * 4 * (elements - elements // 4)
    return here.size, alpha_s, max(1e-12, statistics.median(differences) / moved)


def with_profile(report, profiler):
    """The report, and the profile with it."""
    if profiler is None:
        return report

    def both():
        measured = report()
        return {**measured, "profile": profiler.result(measured.get("update_s", 0.0))}

    return both


class Profiler:
    def __init__(self, model, parameters, names, iterations, ring):
        """iterations: pairs of forward and backward to measure; the script ends after them. ring: measures (workers, alpha_s,
        beta_s_per_byte) of the ring that the job runs on; None for a process alone."""
        self._measure_ring = ring
        self._ring = None
        self._parameters, self._names = parameters, names
        self._wanted = iterations
        self._model_name = type(model).__name__
        self._batch = 0
        self._pairs = []  # (forward {layer: s}, backward {parameter: s})
        self._seen = 0
        self._update_s = []
        self._first_use = []  # layers, by the name of their module
        self._layer_of = {}  # parameter: layer
        self._begin_pair()
        self._handles = [model.register_forward_pre_hook(self._model_begins), model.register_forward_hook(self._model_ended)]
        index = {id(parameter): i for i, parameter in enumerate(parameters)}
        for name, module in model.named_modules():
            own = [index[id(p)] for p in module.parameters(recurse=False) if id(p) in index]
            if own:
                self._handles.append(module.register_forward_pre_hook(self._layer_hook(name or self._model_name, own)))
        for i, parameter in enumerate(parameters):
            if parameter.requires_grad:
                self._handles.append(parameter.register_post_accumulate_grad_hook(self._gradient_hook(i)))

    def _begin_pair(self):
        self._forward, self._backward = {}, {}
        self._layer, self._since = None, None

    def _passed(self):
        now = time.perf_counter()
        passed = now - self._since if self._since is not None else 0.0
        self._since = now
        return passed

    # --- hooks ---

    def _model_begins(self, _module, inputs):
        if torch.is_grad_enabled():
            self._end_pair()
            self._layer, self._since = None, None
            self._batch = next((tensor.shape[0] for tensor in tensors_in(inputs) if tensor.dim() > 0), self._batch)

    def _layer_hook(self, name, own):
        def begins(_module, _inputs):
            if not torch.is_grad_enabled() or self._backward:  # evaluation, or a layer that is computed again in backward
                return
            passed = self._passed()
            if self._layer is not None:
                self._forward[self._layer] = self._forward.get(self._layer, 0.0) + passed
            if name not in self._first_use:
                self._first_use.append(name)
            for i in own:
                self._layer_of.setdefault(i, name)
            self._layer = name

        return begins

    def _model_ended(self, _module, _inputs, _output):
        if torch.is_grad_enabled() and not self._backward and self._layer is not None:
            self._forward[self._layer] = self._forward.get(self._layer, 0.0) + self._passed()
            self._layer = None

    def _gradient_hook(self, i):
        def complete(_parameter):
            self._backward[i] = self._backward.get(i, 0.0) + self._passed()

        return complete

    def _end_pair(self):
        if self._backward and self._forward:
            self._seen += 1
            if self._seen > _WARM_UP:
                self._pairs.append((self._forward, self._backward))
        if self._backward:
            self._begin_pair()

    # --- what the optimizer tells ---

    @contextlib.contextmanager
    def step(self):
        """Around each step(); ends the script, on all ranks in the same step, when enough was measured."""
        self._end_pair()
        began = time.perf_counter()
        yield
        self._update_s.append(time.perf_counter() - began)
        if len(self._pairs) >= self._wanted:
            for handle in self._handles:
                handle.remove()
            if self._measure_ring is not None:
                self._ring = self._measure_ring()
            print(f"maypole: {len(self._pairs)} iterations are profiled; the script ends here", file=sys.stderr, flush=True)
            raise SystemExit(0)

    # --- the profile ---

    def result(self, update_s):
        """The profile as `maypole plan` reads it, or text that says why there is none. update_s: what the engine's own updates took."""
        if not self._pairs:
            return (
                f"the script ended after {self._seen} pairs of forward and backward, of which {_WARM_UP} warm up: let it train for longer "
                "(under torch.compile, layers cannot be told apart: profile without it)"
            )
        ring = self._ring
        used = sorted({i for _, backward in self._pairs for i in backward})
        layers = [name for name in self._first_use if any(self._layer_of.get(i) == name for i in used)]
        tensors = []
        for i in used:
            layer = self._layer_of.get(i) or self._owner_by_name(self._names[i], layers)
            tensors.append((layers.index(layer), i))
        tensors.sort()
        forward = {name: [pair.get(name, 0.0) for pair, _ in self._pairs] for name in layers}
        backward = {name: [0.0] * len(self._pairs) for name in layers}
        for layer, i in tensors:
            for k, (_, pair) in enumerate(self._pairs):
                backward[layers[layer]][k] += pair.get(i, 0.0)
        return {
            "version": 1,
            "model": self._model_name,
            "batch": self._batch,
            "modelled": False,
            "source": f"measured: {len(self._pairs)} iterations, {torch.get_num_threads()} threads, PyTorch {torch.__version__}",
            "update_s": update_s or statistics.median(self._update_s),
            "ring": None if ring is None else dict(zip(("workers", "alpha_s", "beta_s_per_byte"), ring)),
            "layers": [{"name": name, **_timing("forward", forward[name]), **_timing("backward", backward[name])} for name in layers],
            "tensors": [
                {
                    "name": self._names[i],
                    "layer": layers[layer],
                    "elements": self._parameters[i].numel(),
                    "dtype": str(self._parameters[i].dtype).removeprefix("torch."),
                }
                for layer, i in tensors
            ],
        }

    def _owner_by_name(self, name, layers):
        """A tensor whose module is never called (MultiheadAttention.out_proj): the nearest module around it that is."""
        owner = name
        while "." in owner:
            owner = owner.rpartition(".")[0]
            if owner in layers:
                return owner
        return layers[0]


def _timing(phase, seconds):
    spread = 0.0
    if len(seconds) > 1:
        low, _, high = statistics.quantiles(seconds, n=4)
        spread = high - low
    return {f"{phase}_s": statistics.median(seconds), f"{phase}_spread_s": spread}
