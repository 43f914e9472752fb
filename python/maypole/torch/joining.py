# SPDX-License-Identifier: Apache-2.0
"""Uneven data: a rank whose data has ended goes through the same collective steps as the others, with zero gradients.

Before each collective step (a round, a wait for averages, a step) a rank that still trains says which one comes, by a small all-reduce
in the user lane that it does not wait for. A rank that has ended waits for these words and goes along, until nobody trains any more.
All ranks that train must go through equal steps in equal order, as ever; collectives of the script's own are not possible inside.
"""

import contextlib

import torch

from maypole.errors import UsageError
from maypole.torch import runtime

_WORDS = ("end", "round", "synchronize", "discard", "step", "norm")


@contextlib.contextmanager
def join(optimizer):
    rounds = optimizer._rounds
    if rounds is None:
        yield
        return
    if rounds.sharded:
        raise UsageError("join() needs update='replicated': with 'sharded', a rank without data still has to step its part")
    said = []

    def say(word, *details):
        said[:] = [work for work in said if not work.done()]
        said.append(_speak(_WORDS.index(word), *details))

    rounds.joining = True
    rounds.on_event = say
    try:
        yield
    except BaseException:
        rounds.on_event = None
        rounds.joining = False
        raise
    rounds.on_event = None
    if rounds.model is None:
        raise UsageError("join(): a rank without a single batch cannot learn the order of the parameters; give each rank at least one")
    optimizer.zero_grad()
    while (heard := _listen()) is not None:
        _go_along(optimizer, rounds, *heard)
    optimizer.flush()
    rounds.joining = False


def _speak(word, first=0.0, second=0.0):
    # [ranks that train, sum of their words, sums of their details]
    transport = runtime.transport()
    return transport.all_reduce(torch.tensor([1.0, float(word), first, second], dtype=torch.float64, device=transport.device), False)


def _listen():
    transport = runtime.transport()
    message = torch.zeros(4, dtype=torch.float64, device=transport.device)
    transport.all_reduce(message, False).wait()
    training, *sums = message.tolist()
    if training == 0:
        return None
    word, *details = (total / training for total in sums)
    return (_WORDS[round(word)], *details)


def _go_along(optimizer, rounds, word, *details):
    if word == "round":
        rounds.reduce_nothing()
    elif word == "synchronize":
        rounds.synchronize()
    elif word == "discard":
        rounds.discard()
    elif word == "norm":
        rounds.clip(*details)
    else:
        optimizer.step()
        optimizer.zero_grad()
