# SPDX-License-Identifier: Apache-2.0
"""Groups that are tuned while training: whatever happens meanwhile, no result changes."""

import copy
import time

import maypole.torch as maypole
import torch

from cases import Job, adamw, batches, case, expect_close, expect_equal, expect_error, loss_of, mlp, sgd, share, simple_loop

STEPS = 64  # tuning has ended


def wide(dtype=torch.float64):
    """Several blocks of an arena, so that there is something to tune."""
    return mlp(dtype, width=300)


def tuned(job, optimizer):
    """Whether groups were tuned: on the native back end only."""
    report = optimizer.report()
    assert (job.backend == "native") == ("c10d" not in report["fusion"])
    return job.backend == "native"


@case
def groups_are_tuned_in_every_way_and_change_no_result(job: Job):
    def loop(*arguments):
        simple_loop(*arguments, steps=STEPS if job.backend == "native" else 6)

    for size in ("auto:1MB", "plan", "tune"):
        if job.backend != "native" and not size.startswith("auto"):
            model = mlp()
            with expect_error("tune"):
                job.distribute(sgd(model), model, group_size=size)
            continue
        _, optimizer, _ = job.compare(wide, adamw, loop, group_size=size)
        if tuned(job, optimizer) and maypole.rank() == 0:
            text = optimizer.report()["fusion"]
            assert "groups (" in text, text
            assert "tried" in text, text


@case
def ranks_that_are_late_at_random_tune_alike(job: Job):
    def loop(model, optimizer, part):
        generator = torch.Generator().manual_seed(maypole.rank())
        for batch in batches(30):
            optimizer.zero_grad()
            loss = loss_of(model, part, batch)
            if part is share:
                time.sleep(0.004 * torch.rand(1, generator=generator).item())
            loss.backward()
            optimizer.step()

    job.compare(wide, sgd, loop, group_size="auto")


@case
def parameters_that_are_used_now_and_then_are_tuned_with_the_others(job: Job):
    class Fork(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = wide(), wide()

        def forward(self, inputs):
            return self.first(inputs) if inputs.shape[1] == 8 and not self.use_second else self.second(inputs)

    def loop(model, optimizer, part):
        for step, batch in enumerate(batches(30)):
            model.use_second = step % 3 == 2
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            optimizer.step()

    job.compare(Fork, sgd, loop, group_size="auto")


@case
def two_optimizers_are_tuned_beside_each_other(job: Job):
    def build():
        return torch.nn.ModuleList([wide(), wide()])

    def loop(model, optimizers, part):
        for batch in batches(30):
            for one, optimizer in zip(model, optimizers):
                optimizer.zero_grad()
                loss_of(one, part, batch).backward()
            for optimizer in reversed(optimizers):
                optimizer.step()

    torch.manual_seed(0)
    reference = build()
    loop(reference, [sgd(one) for one in reference], lambda batch: batch)
    torch.manual_seed(0)
    model = build()
    loop(model, [job.distribute(sgd(one), one, group_size="auto") for one in model], share)
    expect_equal(model, reference)


@case
def accumulation_goes_on_while_groups_are_tuned(job: Job):
    def loop(model, optimizer, part):
        for step, batch in enumerate(batches(60)):
            if step % 2 == 0:
                optimizer.zero_grad()
            last = step % 2 == 1
            if last or part is not share:
                loss_of(model, part, batch).backward()
            else:
                with optimizer.no_sync():
                    loss_of(model, part, batch).backward()
            if last:
                optimizer.step()

    job.compare(wide, sgd, loop, group_size="auto")


@case
def a_checkpoint_taken_and_loaded_while_groups_are_tuned_is_right(job: Job):
    def loop(model, optimizer, part):
        saved = None
        for step, batch in enumerate(batches(40)):
            if step in (11, 17):  # while the plan is tried
                saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            if step in (14, 23):
                model.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            optimizer.step()

    job.compare(wide, adamw, loop, group_size="auto")


@case
def a_backward_that_fails_while_groups_are_tuned_can_be_repeated(job: Job):
    class Fail(torch.autograd.Function):
        @staticmethod
        def forward(_, inputs):
            return inputs.clone()

        @staticmethod
        def backward(_, gradient):
            raise RuntimeError("made to fail")

    def loop(model, optimizer, part):
        for step, batch in enumerate(batches(30)):
            optimizer.zero_grad()
            if step in (9, 12, 20) and part is share:
                hidden = model[1](model[0](part(batch[0])))
                try:
                    model[4](model[3](model[2](Fail.apply(hidden)))).sum().backward()
                except RuntimeError as error:
                    assert "made to fail" in str(error), error
                optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            optimizer.step()

    if job.backend == "native":
        job.compare(wide, sgd, loop, group_size="auto")


@case
def clipping_and_compression_work_while_groups_are_tuned(job: Job):
    def clipped(model, optimizer, part):
        for batch in batches(30):
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            if part is share:
                optimizer.clip_grad_norm_(0.1)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    job.compare(wide, sgd, clipped, group_size="auto")
    if job.backend == "native" and not job.sharded:

        def loop(*arguments):
            simple_loop(*arguments, steps=30, dtype=torch.float32)

        model, _, _ = job.compare(lambda: wide(torch.float32), sgd, loop, tolerance=5e-2, compression="bf16", group_size="auto")
        for parameter in model.parameters():
            for copied in maypole.all_gather(parameter):
                expect_close(copied, parameter, 0.0)
