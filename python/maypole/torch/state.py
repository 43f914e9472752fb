# SPDX-License-Identifier: Apache-2.0
"""What torch.optim knows and the engine must: hyperparameters, and optimizer state in both directions."""

import torch

from maypole.errors import UsageError
from maypole.torch.placement import touch

# Optimizers that the engine runs itself, whole or on shards, and the options that its updates lack.
_NATIVE = {
    torch.optim.SGD: "sgd",
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adamw",
    torch.optim.RAdam: "radam",
    torch.optim.Adamax: "adamax",
    torch.optim.Adadelta: "adadelta",
    torch.optim.Adagrad: "adagrad",
    torch.optim.RMSprop: "rmsprop",
}
NAMES = "SGD, Adam, AdamW, RAdam, Adamax, Adadelta, Adagrad, RMSprop"
_LACKING = ("amsgrad", "capturable", "differentiable")
_MOMENTS = ("exp_avg", "exp_avg_sq")


def native_kind(optimizer, kinds):
    """Name of the engine's update that equals this optimizer, or ("none", why not). kinds: those that the back end runs, None for all."""
    kind = _NATIVE.get(type(optimizer))
    if kind is None:
        return "none", f"{type(optimizer).__name__} is not one that the engine runs ({NAMES})"
    for group in optimizer.param_groups:
        for option in _LACKING:
            if group.get(option):
                return "none", f"{type(optimizer).__name__} has {option}=True"
        if isinstance(group.get("lr"), torch.Tensor):  # torch computes with it in its own precision
            return "none", f"{type(optimizer).__name__} has a tensor as its learning rate"
    if kind in ("adam", "adamw"):
        decoupled = {bool(group.get("decoupled_weight_decay", kind == "adamw")) for group in optimizer.param_groups}
        if len(decoupled) > 1:
            return "none", "its param groups differ in decoupled_weight_decay"
        kind = "adamw" if decoupled.pop() else "adam"
    if kind == "rmsprop":
        if len({bool(group["centered"]) for group in optimizer.param_groups}) > 1:
            return "none", "its param groups differ in centered"
        if optimizer.param_groups[0]["centered"] and any(group["momentum"] != 0 for group in optimizer.param_groups):
            return "none", "RMSprop has centered=True and momentum"
    if kinds is not None and kind not in kinds:
        return "none", f"this back end does not run {type(optimizer).__name__}"
    return kind, ""


def slot_names(kind, param_groups):
    """The state tensors of the engine's update, as torch names them."""
    momentum = any(group.get("momentum", 0) != 0 for group in param_groups)
    if kind == "sgd":
        return ("momentum_buffer",) if momentum else ()
    if kind == "rmsprop":
        if param_groups[0]["centered"]:
            return ("square_avg", "grad_avg")
        return ("square_avg", "momentum_buffer") if momentum else ("square_avg",)
    return {
        "none": (),
        "adam": _MOMENTS,
        "adamw": _MOMENTS,
        "radam": _MOMENTS,
        "adamax": ("exp_avg", "exp_inf"),
        "adadelta": ("square_avg", "acc_delta"),
        "adagrad": ("sum",),
    }[kind]


def as_torch_has_it(kind, count, arrays):
    """One parameter's entry in torch's state. arrays: the engine's, by torch's names."""
    if count == 0 and kind != "adagrad":  # Adagrad has its sums from the start
        return {}
    return arrays if kind == "sgd" else {"step": torch.tensor(float(count), dtype=torch.float32), **arrays}


class EngineState:
    """The optimizer state of one model, kept by the engine and shown in inner.state as torch would have it."""

    def __init__(self, rounds, inner, kind, sharded):
        self._rounds = rounds
        self._inner = inner
        self._kind = kind
        self._sharded = sharded
        self._slots = slot_names(kind, inner.param_groups)
        self._num_groups = len(inner.param_groups)
        self._all_zero = True  # the engine's state, before anything was loaded
        self._taken = False  # the engine's state is the one that counts
        self._views = {}

    @property
    def num_slots(self):
        return len(self._slots)

    @property
    def slot_names(self):
        return self._slots

    @property
    def taken(self):
        """Whether the engine's state is the one that counts."""
        return self._taken

    def hyperparameters(self):
        groups = self._inner.param_groups
        if len(groups) != self._num_groups:
            raise UsageError(f"the optimizer has {len(groups)} param groups; it had {self._num_groups} at its first step")
        return [self._hyper_of(group) for group in groups]

    def _hyper_of(self, group):
        """One param group as the engine takes it: the fields of Hyperparameters (maypole/pipeline/optimizer.h) in their order."""
        if self._kind == "none":
            group = {}
        momentum = float(group.get("momentum", 0))
        if momentum != 0 and "momentum_buffer" not in self._slots:
            raise UsageError(
                f"momentum was 0 when training began and is not now; build {type(self._inner).__name__} with momentum > 0 instead"
            )
        beta1, beta2 = group.get("betas", (0.0, group.get("rho", group.get("alpha", 0.0))))
        return (
            float(group.get("lr", 0)),
            float(group.get("weight_decay", 0)),
            momentum,
            float(group.get("dampening", 0)),
            bool(group.get("nesterov", False)),
            float(beta1),
            float(beta2),
            float(group.get("eps", 0)),
            bool(group.get("maximize", False)),
            bool(group.get("decoupled_weight_decay", False)),
            bool(group.get("centered", False)),
            float(group.get("lr_decay", 0)),
        )

    def take(self):
        """From inner.state (a loaded checkpoint) into the engine."""
        rounds = self._rounds
        for i, parameter in enumerate(rounds.parameters):
            entry = self._inner.state.get(parameter, {})
            rounds.engine.set_update_count(rounds.model, i, self._count_in(entry))
            for slot, name in enumerate(self._slots):
                value = entry.get(name)
                if value is None and self._all_zero:
                    continue
                if value is None:
                    value = torch.zeros_like(parameter)
                packed, kind = value, (parameter.shape, parameter.stride(), parameter.dtype, parameter.device)
                if (value.shape, value.stride(), value.dtype, value.device) != kind:
                    packed = torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype)
                    packed.copy_(value)
                if not self._sharded:
                    touch(self._tensor(i, slot))
                rounds.engine.write_state_tensor(rounds.model, i, slot, packed)
        self._all_zero = False
        self._taken = True
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
        self._fill(self._tensor)

    def keep(self):
        """Leaves replicated state to inner.state, in the memory in which the last update left it: the engine will be gone. No peer is
        asked."""
        if self._taken and self._slots:
            self._fill(self._tensor)
            self._views = {}

    def _fill(self, tensor_of):
        rounds = self._rounds
        for i, parameter in enumerate(rounds.parameters):
            count = rounds.engine.update_count(rounds.model, i)
            if count > 0 or self._kind == "adagrad":
                arrays = {name: tensor_of(i, slot) for slot, name in enumerate(self._slots)}
                self._inner.state[parameter] = as_torch_has_it(self._kind, count, arrays)

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
