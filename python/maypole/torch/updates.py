# SPDX-License-Identifier: Apache-2.0
"""torch's own functional updates, for the c10d back end."""

import torch
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

KINDS = ("sgd", "adam", "adamw")


def update(kind, hyper, parameters, gradients, states, counts):
    """Updates flat parameters in place. hyper: as EngineState makes it. counts: updates of each parameter so far, with this one."""
    if not parameters:
        return
    lr, weight_decay, momentum, dampening, nesterov, beta1, beta2, eps, maximize = hyper[:9]
    with torch.no_grad():
        if kind == "sgd":
            # torch starts a momentum buffer as the first gradient, without dampening; ours exists from the start.
            buffers = [state[0] if state and count > 1 else None for state, count in zip(states, counts)]
            sgd(
                parameters, gradients, buffers, weight_decay=weight_decay, momentum=momentum, lr=lr, dampening=dampening,
                nesterov=nesterov, maximize=maximize, has_sparse_grad=False, foreach=True,
            )  # fmt: skip
            for state, buffer in zip(states, buffers):
                if state and buffer is not None and buffer is not state[0]:
                    state[0].copy_(buffer)
            return
        steps = [torch.tensor(float(count - 1)) for count in counts]
        (adamw if kind == "adamw" else adam)(
            parameters, gradients, [state[0] for state in states], [state[1] for state in states], [], steps, amsgrad=False, beta1=beta1,
            beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize, foreach=True,
        )  # fmt: skip
