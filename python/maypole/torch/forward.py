# SPDX-License-Identifier: Apache-2.0
"""What is learned from the model's own forward: where it begins, in which order parameters are used, where its backward will begin."""

import dataclasses
from collections.abc import Mapping

import torch
from torch._compile import _disable_dynamo

from maypole.errors import MaypoleError
from maypole.torch.guard import mend


def tensors_in(value):
    """All tensors in nested lists, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


class ForwardHooks:
    """Copies of the model (deepcopy, pickle) are not trained by us: they get hooks without effect."""

    def __init__(self, model, rounds, buffers):
        self._rounds = rounds
        self._buffers = buffers
        self._model = model
        self._looked_for_compiled = False
        self._handles = [
            model.register_forward_pre_hook(self._begins),
            model.register_forward_hook(self._ended),
            model.register_state_dict_pre_hook(self._flush),
        ]
        if buffers is not None:
            # Submodules can be called without the model around them.
            self._handles += [owner.register_forward_pre_hook(self._needs_buffers) for owner in buffers.owners if owner is not model]
        if hasattr(model, "_orig_mod"):
            rounds.compiled = True

    def remove(self):
        for handle in self._handles:
            handle.remove()

    @classmethod
    def without_effect(cls):
        hooks = cls.__new__(cls)
        hooks._rounds = None
        return hooks

    def __deepcopy__(self, memo):
        return self.without_effect()

    def __reduce__(self):
        return ForwardHooks.without_effect, ()

    def _begins(self, _module, _inputs):
        if self._rounds is None:
            return
        if torch.compiler.is_compiling():
            self._compiled_begins()
            return
        rounds = self._rounds
        if self._buffers is not None:
            self._buffers.finish()
        if not self._looked_for_compiled:
            self._look_for_compiled()
        if rounds.compiled:
            rounds.compiled_forward_begins()
        if torch.is_grad_enabled():
            rounds.hooks.forward_begins()
            if not rounds.compiled:
                rounds.record_first_use()

    def _look_for_compiled(self):
        self._looked_for_compiled = True
        if any(hasattr(module, "_orig_mod") or module._compiled_call_impl is not None for module in self._model.modules()):
            self._rounds.compiled = True

    def _needs_buffers(self, _module, _inputs):
        if self._rounds is not None and not torch.compiler.is_compiling():
            self._buffers.finish()

    @_disable_dynamo
    def _compiled_begins(self):
        if self._buffers is not None:
            self._buffers.finish()
        self._rounds.compiled = True
        self._rounds.compiled_forward_begins()
        if torch.is_grad_enabled():
            self._rounds.hooks.forward_begins()

    def _ended(self, _module, _inputs, output):
        if self._rounds is None:
            return
        if torch.compiler.is_compiling():
            self._compiled_ended(output)
        else:
            self._watch_outputs(output)

    @_disable_dynamo
    def _compiled_ended(self, output):
        self._watch_outputs(output)

    def _watch_outputs(self, output):
        if self._rounds.model is None:
            self._rounds.unguard()
        self._rounds.compiled_forward_ended()
        # torch.func's transforms run backwards of their own, whose gradients belong to the script.
        if torch.is_grad_enabled() and torch._C._functorch.peek_interpreter_stack() is None:
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._backward_begins)

    def _backward_begins(self, _gradient):
        self._rounds.hooks.backward_begins()

    def _flush(self, _module, _prefix, _keep_vars):
        if self._rounds is None:
            return
        try:
            self._rounds.flush()
            if self._buffers is not None:
                self._buffers.finish()
        except MaypoleError as error:
            mend(self._rounds, error)
