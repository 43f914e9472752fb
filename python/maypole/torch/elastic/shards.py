# SPDX-License-Identifier: Apache-2.0
"""What an elastic run with update="sharded" keeps, so that a lost worker's shard is not lost with it.

A part is one rank's shard (its elements of parameters and moments) after some step. Each worker has, of the ring it is in:

    its own part now, and while a step's parameters are in motion also the one before it (the engine keeps what an update replaces)
    its part at the last copy, and the parts that it copied then for ranks whose holder it is
    until the first copy of a ring is complete: everything as it was when the ring formed

When a ring breaks, survivors tell each other what they have and take the latest step that is whole between them: with nobody lost that
of the step that broke, else that of the last copy.
"""

import copy
import dataclasses
import json
import sys
import threading
import time

import torch

from maypole import _core
from maypole.errors import MaypoleError, UsageError
from maypole.torch import elastic_seat, inspection
from maypole.torch.collectives import as_bytes
from maypole.torch.elastic import transfer
from maypole.torch.placement import unguarded
from maypole.torch.state import as_torch_has_it

_SHORTEST_S = 0.1  # between two copies: setting a shard aside waits for the step's parameters, which the forward pass would hide


@dataclasses.dataclass
class Part:
    step: int
    ring: int  # epoch of the ring in which it was a rank's part
    size: int
    rank: int
    layout: dict  # of the model in that ring: names, slots, and of each name the runs of elements
    data: torch.Tensor  # bytes, as the engine's read_shard() has them

    @property
    def place(self):
        return [self.step, self.ring, self.size, self.rank]


def holders_of(hosts):
    """[rank]: who keeps a copy of its part: the next rank on another host; on one host, the next rank."""

    def holder(rank):
        following = [(rank + k) % len(hosts) for k in range(1, len(hosts))]
        return next((other for other in following if hosts[other] != hosts[rank]), following[0] if following else rank)

    return [holder(rank) for rank in range(len(hosts))]


def choose(offers):
    """offers: [rank] {"wholes": steps, "parts": [step, ring, size, rank] each, "records": steps}. The latest step that is whole between
    the ranks, and whom it comes from: (step, rank with its record, rank with everything or None, [(part's place, rank that has it)])."""
    records = {step: rank for rank, offer in reversed([*enumerate(offers)]) for step in offer["records"]}
    best = None
    for rank, offer in enumerate(offers):
        for step in offer["wholes"]:
            if step in records and (best is None or step > best[0]):
                best = step, records[step], rank, []
    rings = {}
    for rank, offer in enumerate(offers):
        for step, ring, size, of in offer["parts"]:
            rings.setdefault((step, ring, size), {}).setdefault(of, rank)
    for (step, ring, size), owners in rings.items():
        if len(owners) == size and step in records and (best is None or step > best[0]):
            best = step, records[step], None, [([step, ring, size, of], owners[of]) for of in range(size)]
    return best


class Shards:
    def __init__(self, optimizer, model, seat, budget):
        """budget: the part of a link's bandwidth that copies may take."""
        if not 0 < budget <= 1:
            raise UsageError(f"copy_budget is a part of the link's bandwidth, more than 0 and at most 1, not {budget}")
        self._optimizer, self._model, self._seat, self._budget = optimizer, model, seat, budget
        self._records = {}  # step -> what all ranks have alike beside the shards: scheduler, options, buffers, ...
        self._wholes = {}  # step -> everything that is sharded
        self._parts = []  # of copies, and of rings that have ended
        self._counts = []  # (step, step() calls of the engine), the last ones
        self._copying, self._number, self._copied_at, self._interval_s = None, 0, 0.0, 0.0

    @property
    def begun(self):
        """Whether ring_begins() was called for the ring that there is."""
        return bool(self._counts)

    # --- while a ring trains ---

    def ring_begins(self, here, step, record):
        """All ranks hold everything."""
        rounds = self._optimizer._rounds
        if rounds is not None and rounds.model is not None:
            raise UsageError("with update='sharded' an elastic.Loop has to be begun before the first step() of its optimizer")
        self._here, self._ring, self._hosts = here, self._seat.epoch, self._seat.hosts
        self._records, self._parts, self._counts = {}, [], []
        self._wholes = {step: self._everything(clone=here.size > 1)}
        self._copying, self._number = None, 0
        self.committed(step, record, 0)

    def committed(self, step, record, calls):
        """record: what is to be restored beside shards, at the beginning of `step`; calls: 1 if the engine has updated, else 0."""
        if not self._counts or self._counts[-1][0] != step:
            self._counts = [*self._counts[-2:], (step, calls + (self._counts[-1][1] if self._counts else 0))]
        parts = self._parts if self._copying is None else [*self._parts, *self._copying.parts]
        kept = {*self._wholes, *(part.step for part in parts), *(step for step, _ in self._counts)}
        self._records = {step: copy.deepcopy(record), **{old: self._records[old] for old in kept & self._records.keys() if old != step}}

    def flags(self):
        """What the ranks count: whether this one's copies are complete, and whether others are due."""
        if not self._has_model():
            return 0.0, 0.0
        copied = self._copying is not None and self._copying.complete
        due = self._copying is None or (copied and time.monotonic() - self._copied_at >= self._interval_s)
        return float(copied), float(due)

    def follow(self, copied, due):
        """copied, due: whether all ranks have said so. Every rank does the same, between the same two steps."""
        if copied and self._copying is not None and not self._copying.seen:
            self._copying.seen = True
            self._wholes = {}
            self._parts = [*self._copying.parts]
        if due:
            self._copy()

    def _has_model(self):
        rounds = self._optimizer._rounds
        return rounds is not None and rounds.model is not None and self._optimizer._state.taken

    def _copy(self):
        rounds, here = self._optimizer._rounds, self._here
        engine = rounds.engine
        rounds.flush()
        step, calls = self._counts[-1]
        shard = engine.read_shard(rounds.model, calls)
        self._number += 1
        engine.offer(self._number, shard)
        if self._number > 2:
            engine.offer(self._number - 2, None)
        mine = self._part(step, shard)
        holders = holders_of(self._hosts)
        seconds_per_byte = max(engine.edge_cost[1], 1e-12) / self._budget
        self._copied_at, self._interval_s = time.monotonic(), max(_SHORTEST_S, mine.data.numel() * seconds_per_byte)
        if self._number == 1 and here.rank == 0:
            alone = len(set(self._hosts)) == 1
            where = "the next worker, which a lost host would take along" if alone else "the next worker on another host"
            text = f"each worker's shard of {mine.data.numel() / 1e6:.3g} MB is copied to {where}, every {self._interval_s:.2g} s or more"
            print(f"maypole: {text} ({self._budget:.1%} of the link)", file=sys.stderr, flush=True)
        sources = [self._part(step, None, rank) for rank in range(here.size) if holders[rank] == here.rank != rank]
        self._copying = _Copying(engine, self._number, mine, sources, seconds_per_byte)

    def _part(self, step, shard, rank=None):
        rounds, here = self._optimizer._rounds, self._here
        rank = here.rank if rank is None else rank
        pieces = [rounds.engine.shard_elements(rounds.model, i, rank) for i in range(len(rounds.parameters))]
        slots = [*self._optimizer._state.slot_names]
        layout = {"names": [*rounds.names], "slots": slots, "pieces": pieces, "kind": self._optimizer._kind}
        if shard is None:
            elements = [sum(end - begin for begin, end in runs) for runs in pieces]
            sizes = [count * parameter.element_size() for count, parameter in zip(elements, rounds.parameters)]
            data = torch.empty(8 * len(sizes) + (1 + len(slots)) * sum(sizes), dtype=torch.uint8)
        else:
            data = transfer.memory_of(shard)
        return Part(step, self._ring, here.size, rank, layout, data)

    # --- when a ring ends ---

    def gather(self):
        """Before a planned change, in the ring that ends: everything to everyone."""
        if not self._has_model():
            return
        self._optimizer._rounds.flush()
        step, calls = self._counts[-1]
        here, rounds = self._here, self._optimizer._rounds
        parts = [self._part(step, None, rank) for rank in range(here.size)]
        longest = max(part.data.numel() for part in parts)
        gathered = torch.empty(here.size, longest, dtype=torch.uint8)
        mine = transfer.memory_of(rounds.engine.read_shard(rounds.model, calls))
        gathered[here.rank, : mine.numel()] = mine
        here.transport.all_gather(gathered.view(-1)).wait()
        for part in parts:
            part.data = gathered[part.rank, : part.data.numel()]
        self._wholes = {step: self._assembled(parts)}

    def ring_ends(self):
        """Takes out of the engine what there is; it will be gone. No peer is asked."""
        if self._copying is not None:
            self._copying.stop()
            if self._copying.complete:
                self._parts += self._copying.parts
            self._copying = None
        rounds = self._optimizer._rounds
        if not self._counts:
            return
        if rounds is None and self._here.size == 1:
            self._wholes = {self._counts[-1][0]: self._everything(clone=False)}
        elif self._has_model() and self._counts[-1][0] not in self._wholes:
            step, calls = self._counts[-1]
            for at, count in [*self._counts[-2:], (step + 1, calls + 1)]:
                try:
                    self._parts.append(self._part(at, rounds.engine.read_shard(rounds.model, count)))
                except MaypoleError:
                    continue  # of another step than this rank's
        self._counts = []

    # --- what a ring begins with ---

    def align(self, here, has_checkpoints, room):
        """Makes all ranks equal; returns (step, record): (-1, None) where what they have is not whole, (None, None) where none has
        anything."""
        mine = {"wholes": [*self._wholes], "parts": [part.place for part in self._parts], "records": [*self._records]}
        texts = [json.dumps(mine)] if here.size == 1 else transfer.exchange(here.transport, here.rank, here.size, json.dumps(mine))
        offers = [json.loads(text) for text in texts]
        if not any(offer["records"] for offer in offers):
            return None, None
        chosen = choose(offers)
        if chosen is None:
            text = "a lost worker's shard is lost with it: the worker that held its copy is lost, too"
            if not has_checkpoints:
                raise MaypoleError(f"{text}, and there is no checkpoint")
            if here.rank == 0:
                print(f"maypole: {text}", file=sys.stderr, flush=True)
            return -1, None
        step, root, whole, sources = chosen
        record = self._sent(here, root, root == here.rank and self._records[step])
        if whole is not None:
            everything = self._wholes.get(step)
            sources = [rank for rank, offer in enumerate(offers) if step in offer["wholes"]]
            if len(sources) < here.size:
                everything = transfer.hand_over(here, self._seat, sources, everything, room)
        else:
            parts = []
            for place, holder in sources:
                part = next((part for part in self._parts if part.place == place), None) if holder == here.rank else None
                layout, data = self._sent(here, holder, part and (part.layout, part.data))
                parts.append(Part(*place, layout, data))
            everything = self._assembled(parts)
        self._load(everything)
        return step, record

    def _sent(self, here, root, value):
        if here.size == 1:
            return value
        if here.rank == root:
            transfer.send(here.transport, root, value)
            return value
        return transfer.receive(here.transport, root, wanted=True)

    def _by_name(self):
        parameters, names, _ = inspection.collect(self._optimizer._inner, self._model)
        return dict(zip(names, parameters))

    def _everything(self, clone):
        state = self._optimizer._inner.state
        with torch.no_grad(), unguarded():
            parameters = {name: p.detach().clone() if clone else p.detach() for name, p in self._by_name().items()}
        return {"parameters": parameters, "state": {name: dict(state.get(p, {})) for name, p in self._by_name().items()}}

    def _assembled(self, parts):
        """Everything, from the parts of all ranks of a ring."""
        layout, parameters = parts[0].layout, self._by_name()
        arrays = {}
        for name in layout["names"]:
            like = parameters[name]
            arrays[name] = [torch.zeros(like.numel(), dtype=like.dtype) for _ in range(1 + len(layout["slots"]))]
        for part in parts:
            at = 8 * len(layout["names"])
            for name, runs in zip(layout["names"], part.layout["pieces"]):
                for array in arrays[name]:
                    for begin, end in runs:
                        target = as_bytes(array[begin:end])
                        target.copy_(part.data[at : at + target.numel()])
                        at += target.numel()
        counts = parts[0].data[: 8 * len(layout["names"])].clone().view(torch.int64).tolist()
        everything = {"parameters": {}, "state": {}}
        for name, count in zip(layout["names"], counts):
            like = torch.empty_like(parameters[name].detach())
            shaped = [array.as_strided(like.shape, like.stride()) for array in arrays[name]]
            everything["parameters"][name] = shaped[0]
            everything["state"][name] = as_torch_has_it(layout["kind"], count, dict(zip(layout["slots"], shaped[1:])))
        return everything

    def _load(self, everything):
        state = self._optimizer._inner.state
        with torch.no_grad(), unguarded():
            for name, parameter in self._by_name().items():
                parameter.copy_(everything["parameters"][name])
                state.pop(parameter, None)
                if everything["state"][name]:
                    state[parameter] = dict(everything["state"][name])


class _Copying:
    """This rank's parts of others are fetched, little by little, by a thread of its own."""

    def __init__(self, engine, number, mine, sources, seconds_per_byte):
        self.parts = [mine, *sources]
        self.complete = not sources
        self.seen = False  # all ranks have said that theirs are complete
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(engine, number, sources, seconds_per_byte), daemon=True)
        self._thread.start()

    def _run(self, engine, number, sources, seconds_per_byte):
        due = time.monotonic()
        try:
            for part in sources:
                for piece, target in enumerate(part.data.split(_core.OFFER_PIECE)):
                    if self._stopped.wait(max(0.0, due - time.monotonic())):
                        return
                    got = engine.fetch(part.rank, number, piece)
                    target.copy_(torch.frombuffer(bytearray(got), dtype=torch.uint8))
                    due += target.numel() * seconds_per_byte
            self.complete = True
        except elastic_seat.BROKEN:
            pass  # the ring is broken, and its end is on the way

    def stop(self):
        """Also frees the engine for its end: a fetch ends when the piece is here, or with the ring."""
        self._stopped.set()
        self._thread.join()
