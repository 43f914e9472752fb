# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: one torch optimizer and its model, on all ranks."""

import contextlib
import weakref
from collections import OrderedDict

import torch

from maypole.errors import ClosedError, UsageError
from maypole.torch import elastic_seat, guard, inspection, joining, profiling, runtime, tuning
from maypole.torch.buffers import BufferBroadcast
from maypole.torch.collectives import all_reduce, check_agreement
from maypole.torch.forward import ForwardHooks
from maypole.torch.placement import unguarded
from maypole.torch.rounds import Rounds
from maypole.torch.state import EngineState, native_kind

SCHEDULES = ("sync", "wfbp", "dear", "weave")


class DistributedOptimizer(torch.optim.Optimizer):
    """Trains `model` with `optimizer` on all ranks: gradients are averaged, every rank holds the same parameters.

    schedule: "weave" (default), "dear", "wfbp" or "sync": when communication runs (MAYPOLE_SCHEDULE overrides it).
    update: "auto" is "replicated", where every rank updates everything and each torch optimizer works; "sharded" updates and keeps
        state for a part on each rank (SGD, Adam, AdamW, RAdam, Adamax, Adadelta, Adagrad, RMSprop; schedules dear and weave).
    group_size: what travels together. "auto" (default) observes some iterations, plans groups for this model and network, tries and
        refines the plan, and has ended after 60 iterations; "plan" takes the plan untried; "tune" searches without a plan. They begin
        with groups of 1 MiB, or of the size behind a colon ("auto:8MB"). A number of bytes, or text as "8MB", stays.
    broadcast_buffers: rank 0's buffers are everyone's, each iteration.
    compression: "bf16" sends float32 as bfloat16 (sums are kept in float32); None sends what there is.
    tuning_cache: keep what "auto" chose, and begin with it the next time (MAYPOLE_TUNING_CACHE: a folder, or off).

    It is a torch.optim.Optimizer that shares param_groups and state with the inner one, so learning-rate schedulers built on either
    work. A world of one passes everything to the inner optimizer.
    """

    def __init__(
        self,
        optimizer,
        model,
        schedule="weave",
        update="auto",
        group_size="auto",
        broadcast_buffers=True,
        compression=None,
        tuning_cache=True,
    ):
        # torch.optim.Optimizer.__init__ is not called: param_groups and state are the inner optimizer's.
        here = runtime.current()
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, DistributedOptimizer):
            raise UsageError(f"DistributedOptimizer takes a torch optimizer and its model, not a {type(optimizer).__name__}")
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"DistributedOptimizer takes the model as its second argument, not a {type(model).__name__}")
        self._inner = optimizer
        self._model = model
        self.defaults = optimizer.defaults
        self._share_hooks()
        self._transaction = None  # the loop of maypole.torch.elastic that trains with this optimizer
        self._layout = None  # what the last ring knew of the model, for the next one
        self._asked = schedule, update, group_size, broadcast_buffers, compression, tuning_cache
        self._open(here)

    def _open(self, here, aligned=False):
        """Takes the model into the ring of `here`. aligned: all ranks hold equal values, and one layout or none, already."""
        self._here = here
        optimizer, model = self._inner, self._model
        schedule, update, group_size, broadcast_buffers, compression, tuning_cache = self._asked
        schedule = here.environment.schedule or schedule
        sharded = _check_options(schedule, update, compression)
        kind, reason = native_kind(optimizer, None if here.engine is None else here.engine.update_kinds)
        if sharded and kind == "none":
            raise UsageError(f"update='sharded' cannot run this optimizer: {reason}; use update='replicated'")
        self._kind = kind
        self._rounds = None
        self._buffers = None
        self._clock = runtime.IterationClock(schedule, "sharded" if sharded else "replicated")
        self._profiler = profiling.start(optimizer, model, here)
        grouping = tuning.group_options(group_size, here.backend == "native" and self._profiler is None)
        if here.size == 1:
            here.reports.append(profiling.with_profile(self._clock.report, self._profiler))
            return

        if here.apart is not None:
            here.apart.know(optimizer, self)
        options = {
            "schedule": schedule,
            "sharded": sharded,
            "optimizer": kind,
            "num_state_slots": 0,
            **grouping,
            **({"keep_previous": True} if self._keeps_previous(schedule, kind) else {}),
            "compress_bfloat16": compression == "bf16",
        }
        here.engine.check_options(options)
        parameters, names, groups = inspection.collect(optimizer, model)
        inspection.check(model, parameters, names, here.engine)
        settings = [f"{type(optimizer).__name__} {schedule} {update} {compression} {group_size}", *inspection.option_lines(optimizer)]
        inspection.agree(model, parameters, names, settings)
        if not aligned:
            inspection.share_values(model, parameters)
        self._watch = inspection.OptionWatch(optimizer, here.size)
        rounds = Rounds(here.engine, parameters, names, groups, options, tuning.TunedGroups(options, here, tuning_cache))
        self._rounds = rounds
        self._state = EngineState(rounds, optimizer, kind, sharded)
        options["num_state_slots"] = self._state.num_slots
        handles = []
        if kind != "none":
            rounds.on_set_up = self._state.take
            handles.append(optimizer.register_state_dict_pre_hook(lambda _, show=self._state.show: show()))
        if broadcast_buffers and any(True for _ in model.buffers()):
            self._buffers = BufferBroadcast(model, here.transport, here.rank)
        handles.append(ForwardHooks(model, rounds, self._buffers))
        here.reports.append(profiling.with_profile(lambda: rounds.report(), self._profiler))
        # Nothing that outlives this object may hold it: hooks hold rounds and state.
        self._retire = weakref.finalize(self, _retire, rounds, handles)
        self._retire.atexit = False
        if aligned and self._layout is not None:
            rounds.set_up(self._layout)
            if sharded and here.size > 1:
                here.transport.barrier().wait()  # whoever reads the state asks the others, who shall have theirs

    def _come_to_rest(self):
        """Leaves the ring: parameters and state stay in this process, as the last finished step left them. No peer is asked."""
        if self._rounds is None:
            return
        if self._kind != "none" and not self.sharded:
            self._state.keep()
        self._layout = self._rounds.layout() or self._layout
        self._retire()
        with unguarded():
            for group in self._inner.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        self._rounds = self._buffers = self._state = self._watch = None

    @property
    def sharded(self):
        return self._asked[1] == "sharded"

    def _keeps_previous(self, schedule, kind):
        """Whether updates put aside what they replace: those of an elastic run that go on behind step()."""
        return kind != "none" and schedule in ("dear", "weave") and elastic_seat.keeps_previous()

    @property
    def runs_on(self):
        """Whether updates in an elastic.Loop may go on behind step(); a failure can then take them back, or sets back a shard."""
        schedule = self._here.environment.schedule or self._asked[0]
        return self.sharded or self._keeps_previous(schedule, self._kind)

    def _take_part(self, transaction):
        self._transaction = transaction

    def _share_hooks(self):
        self._optimizer_step_pre_hooks = OrderedDict()
        self._optimizer_step_post_hooks = OrderedDict()
        for name in (
            "_optimizer_state_dict_pre_hooks",
            "_optimizer_state_dict_post_hooks",
            "_optimizer_load_state_dict_pre_hooks",
            "_optimizer_load_state_dict_post_hooks",
        ):
            setattr(self, name, getattr(self._inner, name))
        self._patch_step_function()

    # --- what torch.optim.Optimizer has ---

    @property
    def param_groups(self):
        return self._inner.param_groups

    @property
    def state(self):
        if self._rounds is not None and self._kind != "none":
            self._state.show()
        return self._inner.state

    def __getattr__(self, name):
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __repr__(self):
        return f"DistributedOptimizer({self._inner!r})"

    def __getstate__(self):
        raise UsageError("a DistributedOptimizer belongs to its process and cannot be pickled or copied; save its state_dict() instead")

    def add_param_group(self, param_group):
        if self._rounds is not None:
            raise UsageError(
                "add_param_group: the parameters of a DistributedOptimizer are laid out together; add the group to the torch optimizer "
                "before, or make a second torch optimizer and DistributedOptimizer for the new parameters"
            )
        self._inner.add_param_group(param_group)

    def zero_grad(self, set_to_none=True):
        if self._rounds is None or not set_to_none:
            self._inner.zero_grad(set_to_none)
            return
        with unguarded():
            for group in self._inner.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

    def step(self, closure=None):
        """Updates the parameters from the averaged gradients. Parameters that are still on their way make their first user wait."""
        if self._transaction is not None:
            self._transaction.begin_step(closure)
            if not self.runs_on:
                self.synchronize()  # from here on the update needs no peer: it is done whole, or not at all
        if self._profiler is None:
            return self._step(closure)
        with self._profiler.step():
            return self._step(closure)

    def _step(self, closure):
        if self._rounds is None:
            self._clock.tick()
            loss = self._inner.step(closure) if closure is not None else self._inner.step()
            if self._transaction is not None:
                self._transaction.commit()
            return loss
        if not self._rounds.joining:  # where one rank's step stands for another's
            self._watch.check()
        loss = None
        if self._kind != "none":
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            hooks = [*self._inner._optimizer_step_pre_hooks.values()]
            for hook in hooks:
                hook(self._inner, (), {})
            self._rounds.step(self._state.hyperparameters(), None)
            for hook in [*self._inner._optimizer_step_post_hooks.values()]:
                hook(self._inner, (), {})
            self._inner._opt_called = True  # for the order check of schedulers that were built on the inner optimizer
        elif closure is not None:
            loss = self._inner.step(self._averaging(closure))
            self._rounds.step(self._state.hyperparameters(), lambda: None)
        else:
            self._rounds.step(self._state.hyperparameters(), self._inner.step)
        if self._transaction is not None:
            self._transaction.commit()
        if self._buffers is not None:
            self._buffers.start()
        return loss

    def _averaging(self, closure):
        """What torch's own optimizer sees of a closure: averaged gradients, and the loss of the whole batch."""

        def evaluate():
            with torch.enable_grad():
                loss = closure()
            self._rounds.synchronize()
            if isinstance(loss, torch.Tensor):
                return all_reduce(loss.detach().clone())
            return all_reduce(float(loss)) if loss is not None else None

        return evaluate

    def state_dict(self):
        """The state as torch's own optimizer would have it; one rank alone may ask."""
        result = self._inner.state_dict()
        if self._rounds is not None and self._kind != "none" and self._rounds.model is not None:
            self._state.hide()
        return result

    def load_state_dict(self, state_dict):
        """Takes a state_dict() of a DistributedOptimizer of any world size, or of plain torch; every rank loads the same."""
        if self._rounds is not None:
            self._rounds.flush()
        self._inner.load_state_dict(state_dict)
        if self._rounds is not None and self._rounds.model is not None and self._kind != "none":
            self._state.take()

    # --- what it has beside ---

    @contextlib.contextmanager
    def no_sync(self):
        """Inside, backward() accumulates local gradients; the next backward() outside averages the sum."""
        if self._rounds is None:
            yield
            return
        before, self._rounds.syncing = self._rounds.syncing, False
        try:
            yield
        finally:
            self._rounds.syncing = before

    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        """Scales the averaged gradients so that their norm over all parameters is at most max_norm; returns the norm before."""
        if self._rounds is None:
            parameters = [parameter for group in self._inner.param_groups for parameter in group["params"]]
            return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
        return self._rounds.clip(float(max_norm), float(norm_type))

    def synchronize(self):
        """Makes every p.grad the average over ranks now; step() takes what the script leaves there."""
        if self._rounds is not None:
            self._rounds.synchronize()

    def flush(self):
        """Waits until all parameters are current."""
        if self._rounds is not None:
            self._rounds.flush()
            if self._buffers is not None:
                self._buffers.finish()

    def close(self):
        """Ends the training of this model: gradients without a step() are dropped, parameters become plain tensors, and the memory of
        gradients and optimizer state is free (take state_dict() before). Every rank calls it at the same place; ranks that do not are
        told. An optimizer that is dropped between two iterations does the same by itself, without that check."""
        if self._rounds is None or isinstance(self._rounds, _Closed):
            return
        rounds = self._rounds
        self.flush()
        check_agreement("which optimizer is closed", [f"the optimizer of '{rounds.names[0]}', number {rounds.model}"])
        if rounds.model is not None:
            rounds.discard()
        self.zero_grad()
        rounds.agreed_to_end = True
        self._retire()
        self._rounds = _Closed(rounds.report)
        self._kind = "none"
        self._buffers = None

    def join(self):
        """A context for uneven data: ranks that run out early go along with the others (update='replicated')."""
        return joining.join(self)

    def report(self):
        """What communication cost, of this rank: medians in seconds (see docs)."""
        return self._clock.report() if self._rounds is None else self._rounds.report()


class _Closed:
    """Stands where the rounds of a closed optimizer were."""

    joining = True  # no options are compared any more

    def __init__(self, report):
        self.report = report

    def __getattr__(self, _):
        raise ClosedError("this DistributedOptimizer was closed; make another one to go on with distributed training")


def _retire(rounds, handles):
    """The optimizer is gone: its model's parameters come to rest, and may be given to another one."""
    for handle in handles:
        handle.remove()
    rounds.close()
    guard.release(rounds)


def _check_options(schedule, update, compression):
    """Returns whether updates are sharded."""
    if schedule not in SCHEDULES:
        raise UsageError(f"there is no schedule '{schedule}'; there are {', '.join(SCHEDULES)}")
    if update not in ("auto", "replicated", "sharded"):
        raise UsageError(f"update is 'auto', 'replicated' or 'sharded', not {update!r}")
    if compression not in (None, "bf16"):
        raise UsageError(f"compression is None or 'bf16', not {compression!r}")
    if update == "sharded" and schedule in ("sync", "wfbp"):
        raise UsageError(
            f"schedule='{schedule}' gathers gradients and update='sharded' never does; use schedule='weave', or update='replicated'"
        )
    if update == "sharded" and compression is not None:
        raise UsageError(
            "compression='bf16' rounds gradients, and update='sharded' gathers parameters, which stay exact; use update='replicated'"
        )
    return update == "sharded"
