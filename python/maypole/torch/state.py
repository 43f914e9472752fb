# SPDX-License-Identifier: Apache-2.0
"""What torch.optim knows and the engine must: hyperparameters, and optimizer state in both directions."""

import torch

from maypole.errors import UsageError

# Optimizers that the engine runs itself, and the options that its updates lack.
_NATIVE = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
_LACKING = ("amsgrad", "capturable", "differentiable")
_SLOTS = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq"), "adamw": ("exp_avg", "exp_avg_sq")}


def native_kind(optimizer):
    """Name of the engine's update that equals this optimizer, or ("none", why not)."""
    kind = _NATIVE.get(type(optimizer))
    if kind is None:
        return "none", f"{type(optimizer).__name__} is not one that the engine runs (SGD, Adam, AdamW)"
    for group in optimizer.param_groups:
        for option in _LACKING:
            if group.get(option):
                return "none", f"{type(optimizer).__name__} has {option}=True"
    if kind != "sgd":
        decoupled = {bool(group.get("decoupled_weight_decay", kind == "adamw")) for group in optimizer.param_groups}
        if len(decoupled) > 1:
            return "none", "its param groups differ in decoupled_weight_decay"
        kind = "adamw" if decoupled.pop() else "adam"
    return kind, ""


class EngineState:
    """The optimizer state of one model, kept by the engine and shown in inner.state as torch would have it."""

    def __init__(self, rounds, inner, kind, sharded):
        self._rounds = rounds
        self._inner = inner
        self._kind = kind
        self._sharded = sharded
        self._slots = ()
        if kind == "adam" or kind == "adamw" or any(group.get("momentum", 0) != 0 for group in inner.param_groups):
            self._slots = _SLOTS.get(kind, ())
        self._num_groups = len(inner.param_groups)
        self._views = {}

    @property
    def num_slots(self):
        return len(self._slots)

    def hyperparameters(self):
        groups = self._inner.param_groups
        if len(groups) != self._num_groups:
            raise UsageError(f"the optimizer has {len(groups)} param groups; it had {self._num_groups} at its first step")
        return [self._hyper_of(group) for group in groups]

    def _hyper_of(self, group):
        if self._kind == "none":
            return (0.0, 0.0, 0.0, 0.0, False, 0.0, 0.0, 0.0, False)
        lr, decay, maximize = float(group["lr"]), float(group["weight_decay"]), bool(group["maximize"])
        if self._kind == "sgd":
            momentum = float(group["momentum"])
            if momentum != 0 and not self._slots:
                raise UsageError("momentum was 0 when training began and is not now; build SGD with momentum > 0 to change it later")
            return (lr, decay, momentum, float(group["dampening"]), bool(group["nesterov"]), 0.0, 0.0, 0.0, maximize)
        beta1, beta2 = (float(beta) for beta in group["betas"])
        return (lr, decay, 0.0, 0.0, False, beta1, beta2, float(group["eps"]), maximize)

    def take(self):
        """From inner.state (a loaded checkpoint) into the engine."""
        rounds = self._rounds
        for i, parameter in enumerate(rounds.parameters):
            entry = self._inner.state.get(parameter, {})
            rounds.engine.set_update_count(rounds.model, i, self._count_in(entry))
            for slot, name in enumerate(self._slots):
                value = entry.get(name)
                if value is None:
                    value = torch.zeros_like(parameter)
                packed = torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype)
                packed.copy_(value)
                rounds.engine.write_state_tensor(rounds.model, i, slot, packed)
        self.hide()

    def _count_in(self, entry):
        if self._kind == "sgd":  # keeps no count; only whether there was an update matters
            return int(entry.get("momentum_buffer") is not None)
        return int(entry.get("step", 0))

    def show(self):
        """From the engine into inner.state: views where this rank holds all of it, else copies gathered from the peers."""
        rounds = self._rounds
        if rounds.model is None or not self._slots:
            return
        rounds.flush()
        if self._sharded and not rounds.may_read_sharded_state():
            raise UsageError(
                f"the state of the optimizer of '{rounds.names[0]}' is sharded and cannot be read between backward() and step(): peers "
                "may be ahead; read it after step(), or call zero_grad() first if these gradients are not for this optimizer"
            )
        for i, parameter in enumerate(rounds.parameters):
            count = rounds.engine.update_count(rounds.model, i)
            if count == 0:
                continue
            entry = {name: self._tensor(i, slot) for slot, name in enumerate(self._slots)}
            if self._kind != "sgd":
                entry = {"step": torch.tensor(float(count), dtype=torch.float32), **entry}
            self._inner.state[parameter] = entry

    def hide(self):
        """Drops copies that show() gathered or load_state_dict() left: the engine's are the ones that count."""
        for parameter in self._rounds.parameters:
            self._inner.state.pop(parameter, None)

    def _tensor(self, i, slot):
        rounds = self._rounds
        parameter = rounds.parameters[i]
        if self._sharded:
            flat = rounds.engine.read_state_tensor(rounds.model, i, slot, parameter.dtype)
            return flat.as_strided(parameter.shape, parameter.stride())
        if (i, slot) not in self._views:
            flat = rounds.engine.state_tensor(rounds.model, i, slot)
            self._views[i, slot] = flat.as_strided(parameter.shape, parameter.stride())
        return self._views[i, slot]
