# SPDX-License-Identifier: Apache-2.0
"""What an elastic run trains: model, optimizer, scheduler and scaler, as values that can be kept, sent and put back."""

import torch


class Trained:
    def __init__(self, model, optimizer, scheduler, scaler):
        self._model, self._optimizer, self._scheduler, self._scaler = model, optimizer, scheduler, scaler
        self._buffers = [*model.buffers()]

    def facts(self, data_facts, options):
        """What newcomers, or a checkpoint, must have in common with the run, a line a fact."""
        lines = [data_facts]
        lines += [f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors_of(self._model).items()]
        lines += [" ".join([type(self._optimizer._inner).__name__, *map(str, options)])]
        groups = self._optimizer._inner.param_groups
        return lines + [f"parameter group {g} of {len(group['params'])} tensors" for g, group in enumerate(groups)]

    def everything(self):
        return {"tensors": tensors_of(self._model), "optimizer": self._optimizer.state_dict(), **self._movers()}

    def load(self, state):
        mine = tensors_of(self._model)
        with torch.no_grad():
            for name, value in state["tensors"].items():
                mine[name].copy_(value)
        _load_optimizer(self._optimizer._inner, state["optimizer"])
        self._load_movers(state)

    def beside_shards(self):
        """All but parameters and moments; parts of it are still in use."""
        groups = self._optimizer._inner.param_groups
        return {
            "options": [{name: value for name, value in group.items() if name != "params"} for group in groups],
            "buffers": [buffer.detach() for buffer in self._buffers],
            **self._movers(),
        }

    def set_back(self, record):
        """Puts back what beside_shards() gave."""
        for group, options in zip(self._optimizer._inner.param_groups, record["options"]):
            group.update(options)
        self._load_movers(record)
        with torch.no_grad():
            for buffer, value in zip(self._buffers, record["buffers"]):
                buffer.copy_(value)

    def _movers(self):
        return {
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
        }

    def _load_movers(self, state):
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])


def tensors_of(model):
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _load_optimizer(optimizer, state):
    """As load_state_dict, which gives every number the parameter's dtype; what is sent keeps its own, and with it every bit."""
    optimizer.load_state_dict(state)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for i, entry in state["state"].items():
        loaded = optimizer.state[parameters[i]]
        for name, value in entry.items():
            if isinstance(value, torch.Tensor) and loaded[name].dtype != value.dtype:
                loaded[name] = value
