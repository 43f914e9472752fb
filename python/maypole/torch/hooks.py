# SPDX-License-Identifier: Apache-2.0
"""The hooks on parameters: they run once per gradient, so what is usual is done in few lines of Python."""

import functools

import torch

from maypole.torch import guard, wrong


class GradientHooks:
    def __init__(self, rounds):
        self._rounds = rounds
        self._handles = []
        self._ending_queued = False
        self.watch(self.first)

    def watch(self, make_hooks):
        """Replaces all hooks; make_hooks is first or steady."""
        self.remove()
        self._hooked = [False] * len(self._rounds.parameters)
        self._make_hooks = make_hooks
        self.watch_unfrozen()

    def remove(self):
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def watch_unfrozen(self):
        """Hooks exist only on parameters that require a gradient; one that was frozen before gets its hooks here."""
        for i, parameter in enumerate(self._rounds.parameters):
            if not self._hooked[i] and parameter.requires_grad:
                self._hooked[i] = True
                before, after = self._make_hooks(i, parameter)
                if before is not None:
                    self._handles.append(parameter.register_hook(before))
                self._handles.append(parameter.register_post_accumulate_grad_hook(after))

    def first(self, i, _):
        """In the first round: counts, and leaves gradients where they are."""
        rounds = self._rounds

        def after(parameter):
            if parameter.grad.layout != torch.strided:
                raise wrong.sparse(rounds.names[i])
            if rounds.syncing:
                rounds.fired[i] += 1
                self.backward_begins()

        return None, after

    def steady(self, i, parameter):
        """In all later rounds."""
        rounds = self._rounds
        view = rounds.views[i]
        strides, dtype = view.stride(), view.dtype
        ready = functools.partial(rounds.engine.gradient_ready, rounds.model, i)
        fired, moving = rounds.fired, guard.GuardedGradient
        once = rounds.expected[i] <= 1

        def before(_):
            if parameter.grad is view and view.__class__ is moving:
                rounds.before_accumulation(i)

        def after(parameter):
            if rounds.fast and once:
                gradient = parameter.grad
                if gradient is not view and gradient.stride() == strides and gradient.dtype is dtype and fired[i] == 0:
                    fired[i] = 1
                    if rounds.weight != 1.0:
                        gradient.detach().mul_(rounds.weight)
                    ready(gradient.data_ptr())
                    parameter.grad = view
                    view.__class__ = moving
                    return
            rounds.after_accumulation(i)

        return before, after

    def backward_begins(self):
        """Once per backward: arranges for the call at the end of the backward that runs now."""
        if self._rounds.syncing and not self._ending_queued:
            self._ending_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def _backward_ends(self):
        self._ending_queued = False
        if self._rounds.syncing:
            self._rounds.backward_ends()

    def forward_begins(self):
        """The model's own forward begins; a backward that died of an exception before it has lost its end."""
        if torch._C._current_graph_task_id() == -1:
            self._ending_queued = False
            self._rounds.backward_was_lost()
        if self._rounds.model is not None:
            self._rounds.engine.mark_forward(self._rounds.model)
