# SPDX-License-Identifier: Apache-2.0
"""The loop over batches, and what it owns: model, optimizer, scheduler, scaler and the place in the data.

A step is a transaction. optimizer.step() commits it: the scheduler and the place in the data move there, while averages may still be on
their way and updates run behind it, into the next forward pass. When the ring breaks, a rank takes back the step of which it lacks an
average (undo.py): parameters, moments, scheduler, scaler, buffers and place in the data together. So it has all of a step or nothing of
it, and since a step ends nowhere without every rank's gradients, and the next one's begin nowhere before this one is whole there, ranks
are then at most one step apart. Those that lack the step take the state of one that has it (it counts, with the divisor it was made
with); if nobody has, the survivors repeat it. Where an update cannot be taken back (torch's own optimizers, `maypole run --no-undo`),
step() first waits for all averages: from there on it needs no peer. With update="sharded" no rank has the whole state: see shards.py.
"""

import json
import sys
import time
import weakref

import torch

from maypole.errors import MaypoleError, UsageError
from maypole.torch import elastic_seat, inspection, runtime
from maypole.torch.elastic import checkpoints, data, transfer
from maypole.torch.elastic.shards import Shards
from maypole.torch.elastic.trained import Trained, tensors_of
from maypole.torch.elastic.undo import Undo
from maypole.torch.optimizer import DistributedOptimizer
from maypole.torch.state import slot_names


class Loop:
    """Iterates over the batches of `epochs` epochs of a map-style data set, each batch a context in which one step is made.

    batch_size: samples of a step over all workers together, however many there are.
    scheduler: a learning-rate scheduler; the loop calls its step(), after each step or (scheduler_per="epoch") each epoch of the data.
    scaler: a GradScaler that the script uses, whose state newcomers need.
    seed: of the order of samples, and of torch's and Python's random numbers in each step.
    ledger: a file to which this worker appends a JSON line for each committed step: its samples, and how many workers made it.
    checkpoint_dir: a folder, the same for all workers, for the last `checkpoint_keep` checkpoints, one every so many steps or so much time
        (checkpoint_every=500, "10min"). Training begins with the newest good one there. `maypole run` may say otherwise.
    copy_budget: the part of a link that copies of shards may take (update="sharded").
    Other options go to torch's DataLoader (collate_fn, num_workers, ...).
    """

    def __init__(
        self,
        model,
        optimizer,
        dataset,
        batch_size,
        epochs=1,
        scheduler=None,
        scheduler_per="step",
        scaler=None,
        seed=0,
        shuffle=True,
        ledger=None,
        checkpoint_dir=None,
        checkpoint_every="10min",
        checkpoint_keep=3,
        copy_budget=0.01,
        **loader_options,
    ):
        if not isinstance(optimizer, DistributedOptimizer):
            raise UsageError(f"elastic.Loop takes a DistributedOptimizer, not a {type(optimizer).__name__}")
        if scheduler_per not in ("step", "epoch"):
            raise UsageError(f"scheduler_per is 'step' or 'epoch', not {scheduler_per!r}")
        data.check_options(dataset, batch_size, epochs, seed, loader_options)
        self._here = runtime.current()
        self._seat = elastic_seat.seat()
        if self._here.backend != "native":
            raise UsageError("elastic.Loop needs the native back end")
        self._model, self._optimizer, self._dataset = model, optimizer, dataset
        self._shards = Shards(optimizer, model, self._seat, copy_budget) if self._seat is not None and optimizer.sharded else None
        self._undo = Undo(optimizer) if self._seat is not None and not optimizer.sharded else None
        self._scheduler, self._scheduler_per, self._scaler = scheduler, scheduler_per, scaler
        self._seed, self._loader_options = seed, loader_options
        max_workers = self._here.size if self._seat is None else self._seat.max_workers
        self._plan = data.DataPlan(len(dataset), batch_size, epochs, seed, shuffle, max_workers)
        data_facts = f"{len(dataset)} samples in batches of {batch_size}, {{}}, seed {seed}, shuffle={shuffle}"
        self._trained = Trained(model, optimizer, scheduler, scaler)
        self._what = inspection.shortened(self._trained.facts(data_facts.format(f"{epochs} epochs"), optimizer._asked), 48 << 10)
        self._checkpoints = None
        folder, every, keep = checkpoints.settings(checkpoint_dir, checkpoint_every, checkpoint_keep)
        if folder:
            facts = self._trained.facts(data_facts.format(f"{self._plan.steps_per_epoch} steps an epoch"), ())
            self._checkpoints = checkpoints.Checkpoints(folder, every, keep, facts)
        self._ledger = ledger
        self._step = 0  # steps committed
        self._whole = 0  # those of them of which this process has the state, while there is no ring
        self._committed_at = time.perf_counter()
        self._open_batch = None
        self._buffers = [*model.buffers()]
        self._buffers_before = []  # as they were before the step under way: its forward changes running statistics
        self._under_way = False
        self._begun = self._ended = False
        self._batches = None
        self._room = transfer.Room()  # for the state, where it comes from others
        self._flags = None  # the last all-reduce of flags, and the tensor it is made in
        self._life = 0.0  # when training last began again from a checkpoint
        # Whether the run's state is not here yet: it comes from another worker, or from a checkpoint.
        self._is_newcomer = self._checkpoints is not None or (self._seat is not None and not self._seat.is_founder)

    # --- what a script asks for ---

    @property
    def step(self):
        """Steps committed since training began, by whoever made them."""
        return self._step

    @property
    def num_steps(self):
        return self._plan.num_steps

    @property
    def epoch(self):
        """The epoch of the data in which the next step lies."""
        return self._step // self._plan.steps_per_epoch

    def __iter__(self):
        other = self._optimizer._transaction
        if self._under_way or (other is not None and other._under_way):
            raise UsageError("another loop is under way: an elastic.Loop is iterated over alone")
        self._under_way = True
        try:
            yield from self._iterate()
        finally:
            self._under_way = False
            if self._open_batch is not None:  # it was not made; whoever goes on begins with it
                self._open_batch = self._batches = None

    def _iterate(self):
        self._optimizer._take_part(self)
        if self._seat is not None and not self._begun:
            if not self._seat.is_founder:
                self._make_room()
            self._seat.begin_loop(self._what, self._step, self._form)
        self._begun = True
        if self._is_newcomer:
            self._begin_from_checkpoint()
        if self._shards is not None and not self._shards.begun:
            self._shards.ring_begins(self._here, self._step, self._record())
        if self._undo is not None and not self._undo.begun:
            self._undo.ring_begins(self._step)
        while True:
            if self._step >= self._plan.num_steps:  # beyond it where a checkpoint is of more epochs
                if self._ended:
                    return
                try:
                    if self._seat is not None:
                        self._optimizer.flush()  # the last step may still be taken back
                    self._keep_last()
                except elastic_seat.BROKEN as error:
                    self._change(_words(error))
                    continue
                self._whole = self._step
                if self._seat is None or self._seat.finish(self._form, self._step):
                    self._optimizer._take_part(None)
                    self._ended = True
                    return
                continue  # the others needed this worker's state
            try:
                self._keep_if_due()
                stop = self._must_stop()
            except elastic_seat.BROKEN as error:
                self._change(_words(error))
                continue
            if stop:
                self._change("")
                continue
            yield self._next_batch()
            if self._open_batch is not None:
                raise UsageError("each batch of an elastic.Loop is a context: write `with batch as (inputs, targets):`")

    # --- one step ---

    def _next_batch(self):
        here = self._here
        if self._batches is None:
            self._batches = data.batches(self._dataset, self._plan, self._step, here.size, here.rank, self._loader_options)
        data.seed_step(self._seed, self._step, here.rank)
        if self._seat is not None:
            self._buffers_before = [buffer.detach().clone() for buffer in self._buffers]
        if self._shards is not None:
            self._shards.committed(self._step, self._record(), 0)
        if self._undo is not None:
            self._undo.step_begins(self._step, self._record())
        share, weight = self._plan.share(self._step, here.size, here.rank)
        if self._optimizer._rounds is not None:
            self._optimizer._rounds.weight = weight
            self._optimizer._rounds.on_broken = weakref.WeakMethod(self._broke_between)
        self._open_batch = Batch(self, next(self._batches), share)
        return self._open_batch

    def begin_step(self, closure):
        """optimizer.step() begins."""
        if self._open_batch is None or self._open_batch.committed:
            raise UsageError("in an elastic.Loop optimizer.step() is called once in each batch's context")
        if closure is not None:
            raise UsageError("elastic.Loop does not take a closure: it would be called again after a failure")

    def commit(self, updated=True):
        """The update is done: the step counts."""
        batch = self._open_batch
        batch.committed = True
        self._write_ledger(batch.share, "done")
        self._buffers_before = []
        self._advance(updated)

    def _advance(self, updated):
        self._step += 1
        self._committed_at = time.perf_counter()
        if self._scheduler is not None and (self._scheduler_per == "step" or self._step % self._plan.steps_per_epoch == 0):
            self._scheduler.step()
        if self._shards is not None:
            self._shards.committed(self._step, self._record(), int(updated))
        if self._undo is not None:
            self._undo.committed(self._step, updated)

    def _leave(self, batch, error):
        """The batch's context ends. Returns whether the error is dealt with."""
        self._open_batch = None
        if error is None:
            if not batch.committed:  # the scaler found infinities, on all ranks alike: the step counts, and changes nothing
                if self._scaler is None:
                    self._batches = None
                    raise UsageError(
                        "optimizer.step() was not called in the batch's context: call it once in each, and leave the loop between two; "
                        "where a GradScaler calls it, give that to the loop as scaler="
                    )
                self._open_batch = batch
                self.commit(updated=False)
                self._open_batch = None
            return False
        if self._seat is None or not isinstance(error, elastic_seat.BROKEN):
            self._batches = None if not batch.committed else self._batches
            return False
        self._change(_words(error), batch)
        return True

    def _broke_between(self, error):
        """The script uses the model between two batches. Whether the error is dealt with: the model is then that of another ring."""
        if not self._under_way or self._open_batch is not None or not isinstance(error, elastic_seat.BROKEN):
            return False
        self._change(_words(error))
        return True

    # --- checkpoints ---

    def _begin_from_checkpoint(self):
        """In the ring that init() formed: the state of the newest checkpoint is everyone's."""
        try:
            if max(self._ask_all(self._checkpoints.newest())) < 0:
                self._is_newcomer = False
                return
            if self._here.size > 1:
                self._optimizer._come_to_rest()
            self._align()
            if self._here.size > 1:
                self._here.reports.clear()
                self._optimizer._open(self._here, aligned=True)
        except elastic_seat.BROKEN as error:
            if self._seat is None:
                raise
            self._change(_words(error))

    def _resume(self):
        """No worker has the run's state: the one that has the newest checkpoint reads it. It may be damaged; then there is another try."""
        if self._checkpoints is None:
            raise MaypoleError("no worker is left that has trained")
        newest = self._ask_all(self._checkpoints.newest())
        if self._here.rank != newest.index(max(newest)):
            return
        if max(newest) < 0:
            print("maypole: there is no good checkpoint: training begins anew", file=sys.stderr, flush=True)
        elif (state := self._checkpoints.load(max(newest))) is not None:
            self._load(state)
            self._step = state["step"]
        else:
            return
        self._is_newcomer = False
        self._whole = self._step
        self._life = time.time()
        self._write_ledger([], "resumed")

    def _keep_if_due(self):
        if self._checkpoints is not None and self._here.rank == 0 and self._checkpoints.due(self._step):
            self._optimizer.flush()
            self._checkpoints.begin(self._step, self._state())

    def _keep_last(self):
        """At the end of training: whoever starts it again finds it done."""
        if self._checkpoints is not None and self._here.rank == 0:
            self._checkpoints.finish()
            if self._checkpoints.newest() < self._step:
                self._optimizer.flush()
                self._checkpoints.begin(self._step, self._state())
                self._checkpoints.finish()

    # --- from epoch to epoch ---

    def _must_stop(self):
        """Whether all members stop before this step; what one learns between two steps counts after the next, for all alike."""
        if self._seat is None:
            return False
        if self._optimizer._buffers is not None:
            self._optimizer._buffers.finish()
        asked = self._seat.asked_to_stop()
        if self._here.size == 1:
            return asked
        if self._flags is not None:
            work, flags = self._flags
            work.wait()
            wants_stop, copied, due = (flags == self._here.size).tolist()
            if wants_stop:
                return True
            if self._shards is not None:
                self._shards.follow(copied, due)
        flags = torch.tensor([float(asked), *((0.0, 0.0) if self._shards is None else self._shards.flags())], dtype=torch.float64)
        self._flags = self._here.transport.all_reduce(flags, False), flags
        return False

    def _change(self, reason, batch=None):
        """Leaves the ring and enters the next epoch; reason: why the ring broke, "" where all have agreed to stop; batch: the open one."""
        self._flags = self._batches = None
        if self._shards is None and not reason:
            try:
                self._optimizer.flush()
            except elastic_seat.BROKEN as error:
                reason = _words(error)
        if self._shards is not None:
            try:
                if not reason and self._here.size > 1:
                    self._shards.gather()
            except elastic_seat.BROKEN as error:
                reason = _words(error)
            self._shards.ring_ends()
        self._rest(batch)
        try:
            elastic_seat.leave_ring(self._here, reason)
        except elastic_seat.BROKEN as error:
            reason = _words(error)
        self._seat.change(self._form, self._whole, reason)

    def _rest(self, batch):
        """Takes out of the engine the last step that is whole, with what belongs to it."""
        record = None
        if self._undo is not None:
            calls = self._undo.take_back()
            if batch is not None and self._undo.is_ahead(calls):
                self._open_batch = batch
                self.commit()
                self._open_batch = None
            self._whole, record = self._undo.step_of(calls)
        else:
            self._whole = self._step
        self._optimizer._come_to_rest()
        if record is not None:
            self._trained.set_back(record)
        else:
            with torch.no_grad():
                for buffer, before in zip(self._buffers, self._buffers_before):
                    buffer.copy_(before)
        self._buffers_before = []

    def _form(self, environment, rank, size):
        """Forms a ring of the announced members and makes all states equal. Returns the step, and for how long none was made here."""
        here, was_newcomer = self._here, self._is_newcomer
        self._flags = self._batches = None
        if self._shards is not None:
            self._shards.ring_ends()
        self._optimizer._come_to_rest()
        elastic_seat.leave_ring(here, "another one follows")
        elastic_seat.form_ring(here, environment, rank, size, None)
        if self._shards is None or not self._align_shards():
            self._align()
        self._room = transfer.Room()  # what was not needed is free
        if self._checkpoints is not None:
            self._checkpoints.began(self._step)
        self._share_layout()
        if self._shards is not None:
            self._shards.ring_begins(here, self._step, self._record())
        self._optimizer._open(here, aligned=True)
        if self._undo is not None:
            self._undo.ring_begins(self._step)
        return self._step, 0.0 if was_newcomer else time.perf_counter() - self._committed_at

    def _make_room(self):
        """A newcomer has memory for the state before the others wait until it is there."""
        self._room.add(t.detach().clone(memory_format=torch.contiguous_format) for t in tensors_of(self._model).values())
        for group in self._optimizer._inner.param_groups:
            for _ in slot_names(self._optimizer._kind, [group]):
                self._room.add(torch.zeros(p.shape, dtype=p.dtype) for p in group["params"])

    def _align(self):
        """Newcomers, and those that have not finished a step that another one has, take over its state."""
        here = self._here
        while max(steps := self._ask_all(-1 if self._is_newcomer else self._whole)) < 0:
            self._resume()
        latest = max(steps)
        if min(steps) < latest:
            sources = [rank for rank, step in enumerate(steps) if step == latest]
            lacks = here.rank not in sources
            state = transfer.hand_over(here, self._seat, sources, None if lacks else self._state(), self._room)
            if lacks:
                self._load(state)
        self._go_on_from(latest)
        if here.size > 1:
            inspection.share_buffers(self._buffers)  # a failure may have come between a step and its broadcast of buffers

    def _share_layout(self):
        """What one rank knows of the model's groups all shall know: newcomers have seen no iteration of it."""
        here, optimizer = self._here, self._optimizer
        if here.size == 1:
            return
        known = self._ask_all(int(optimizer._layout is not None))
        if 1 not in known:
            return
        root = known.index(1)
        if here.rank == root:
            transfer.send(here.transport, root, optimizer._layout)
        else:
            optimizer._layout = transfer.receive(here.transport, root, wanted=True)

    def _ask_all(self, step):
        here = self._here
        return [step] if here.size == 1 else transfer.agree_on_steps(here.transport, here.rank, here.size, step)

    def _align_shards(self):
        """Everybody goes on from the latest step that is whole between all ranks. False: there is none, and a checkpoint is needed."""
        step, record = self._shards.align(self._here, self._checkpoints is not None, self._room)
        if step is None or step < 0:
            self._is_newcomer = self._is_newcomer or step == -1
            return False
        self._trained.set_back(record)
        self._go_on_from(step)
        self._life = record["life"]
        if self._here.size > 1:
            inspection.share_buffers(self._buffers)
        return True

    def _go_on_from(self, step):
        """Writes down how this process came from the step that it had made to the one that all go on from."""
        if not self._is_newcomer and step < self._step:
            self._write_ledger([], "undone", step)
        elif not self._is_newcomer:
            for missed in range(self._step, step):
                self._write_ledger([], "taken over", missed)
        self._is_newcomer = False
        self._step = self._whole = step

    def _record(self):
        return {"life": self._life, **self._trained.beside_shards()}

    def _state(self):
        return {"step": self._step, "life": self._life, **self._trained.everything()}

    def _load(self, state):
        self._trained.load(state)
        self._life = state["life"]

    def _write_ledger(self, share, how, step=None):
        if self._ledger is not None:
            step = self._step if step is None else step
            line = {
                "step": step,
                "samples": self._plan.batch(step),
                "share": share,
                "how": how,
                "life": self._life,
                "epoch": 0 if self._seat is None else self._seat.epoch,
                "workers": self._here.size,
            }
            with open(self._ledger, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


class Batch:
    """A step's data on this rank. The step is made, and counts or is repeated, within its context."""

    def __init__(self, loop, content, share):
        self.content = content
        self.share = share
        self.committed = False
        self._loop = loop

    def __enter__(self):
        return self.content

    def __exit__(self, kind, error, trace):
        return self._loop._leave(self, error)


def _words(error):
    return str(error) or type(error).__name__
