# SPDX-License-Identifier: Apache-2.0
import maypole.torch as maypole
import torch

from cases import Job, adamw, batches, case, expect_close, expect_equal, expect_error, loss_of, mlp, sgd, simple_loop

MAKERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=1e-2),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.8, 0.99)),
    "maximize": lambda p: torch.optim.AdamW(p, lr=1e-3, maximize=True),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-2, weight_decay=1e-2),
    "radam, decoupled": lambda p: torch.optim.RAdam(p, lr=1e-2, weight_decay=1e-2, decoupled_weight_decay=True),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-2, weight_decay=1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5, weight_decay=1e-2),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=0.1, initial_accumulator_value=0.2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "rmsprop, momentum": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, weight_decay=1e-2, maximize=True),
    "rmsprop, centered": lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True),
}
TORCH_ONLY = {
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "rmsprop, centered and momentum": lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True, momentum=0.9),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "a tensor as learning rate, in its own precision": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2)),
}


@case
def twenty_steps_equal_one_process_on_the_whole_batch(job: Job):
    makers = MAKERS if job.sharded else {**MAKERS, **TORCH_ONLY}
    for name, make in makers.items():
        try:
            job.compare(mlp, lambda m, make=make: make(m.parameters()), lambda *a: simple_loop(*a, steps=20))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@case
def float32_stays_within_1e_4(job: Job):
    def loop(*arguments):
        simple_loop(*arguments, steps=20, dtype=torch.float32)

    job.compare(lambda: mlp(torch.float32), sgd, loop, tolerance=1e-4)
    job.compare(lambda: mlp(torch.float32), adamw, loop, tolerance=1e-4)


@case
def param_groups_keep_their_own_settings(job: Job):
    def make(model):
        return torch.optim.AdamW(
            [
                {"params": model[4].parameters(), "weight_decay": 0.0},
                {"params": model[0].parameters(), "lr": 1e-1},
                {"params": model[2].parameters()},
            ],
            lr=1e-2,
        )

    job.compare(mlp, make, simple_loop)


@case
def learning_rate_schedulers_work_on_either_optimizer(job: Job):
    for on_inner in (False, True):

        def loop(model, optimizer, part, on_inner=on_inner):
            owner = getattr(optimizer, "_inner", optimizer) if on_inner else optimizer
            scheduler = torch.optim.lr_scheduler.OneCycleLR(owner, max_lr=0.2, total_steps=10)
            for batch in batches(8):
                loss_of(model, part, batch).backward()
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

        job.compare(mlp, sgd, loop)


@case
def clipping_by_torch_and_by_us_gives_the_norm_of_the_average(job: Job):
    for norm_type in (2.0, float("inf"), 1.0):
        norms = {}

        def loop(model, optimizer, part, ours=False, norm_type=norm_type, norms=norms):
            norms[part, ours] = []
            for batch in batches(6):
                optimizer.zero_grad()
                loss_of(model, part, batch).backward()
                if ours and hasattr(optimizer, "clip_grad_norm_"):
                    norm = optimizer.clip_grad_norm_(0.1, norm_type)
                else:
                    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type)
                norms[part, ours].append(float(norm))
                optimizer.step()

        job.compare(mlp, adamw, loop)
        job.compare(mlp, sgd, lambda *a, loop=loop: loop(*a, ours=True))
        plain, distributed = [values for (_, ours), values in norms.items() if ours]
        expect_close(torch.tensor(distributed), torch.tensor(plain), name="norms")


@case
def closures_are_called_and_their_loss_returned(job: Job):
    def loop(model, optimizer, part):
        for batch in batches(5):

            def closure(batch=batch):
                optimizer.zero_grad()
                loss = loss_of(model, part, batch)
                loss.backward()
                return loss

            assert optimizer.step(closure) > 0

    job.compare(mlp, sgd, loop)
    if not job.sharded:
        job.compare(
            mlp, lambda m: torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe"), loop, tolerance=1e-7
        )


@case
def gradient_scaler_skips_on_all_ranks_when_one_overflows(job: Job):
    def loop(model, optimizer, part):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        for k, batch in enumerate(batches(8)):
            optimizer.zero_grad()
            loss = loss_of(model, part, batch)
            if k == 4 and (part(torch.arange(12))[0] == 0):
                loss = loss * float("inf")  # rank 0 only, or the plain run
            scaler.scale(loss).backward()
            if k % 2:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        loop.scales.append(scaler.get_scale())

    loop.scales = []
    job.compare(mlp, sgd, loop)
    assert loop.scales[0] == loop.scales[1], loop.scales


@case
def autocast_in_bfloat16_trains_replicas_alike(job: Job):
    def loop(model, optimizer, part):
        for batch in batches(6, dtype=torch.float32):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model, part, batch)
            loss.backward()
            optimizer.step()

    model, _, _ = job.compare(lambda: mlp(torch.float32), sgd, loop, tolerance=5e-2)
    for parameter in model.parameters():
        copies = maypole.all_gather(parameter)
        assert all(torch.equal(copy, copies[0]) for copy in copies)


@case
def parameters_of_several_dtypes_train_together(job: Job):
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(8, 16).float()
            self.second = torch.nn.Linear(16, 3).double()

        def forward(self, inputs):
            return self.second(self.first(inputs.float()).double())

    job.compare(Mixed, sgd, simple_loop, tolerance=1e-4)


@case
def schedulers_state_dicts_and_repr_see_one_owner(job: Job):
    model = mlp()
    inner = adamw(model)
    optimizer = job.distribute(inner, model)
    assert optimizer.param_groups is inner.param_groups
    simple_loop(model, optimizer, lambda b: b[maypole.rank() :: maypole.size()])
    optimizer.param_groups[0]["lr"] = 0.5
    assert inner.param_groups[0]["lr"] == 0.5 and "AdamW" in repr(optimizer)
    assert set(optimizer.state[next(iter(model.parameters()))]) == {"step", "exp_avg", "exp_avg_sq"}
    reference = mlp()
    reference.load_state_dict(model.state_dict())
    expect_equal(model, reference, 0.0)


@case
def bfloat16_compression_trains_replicas_alike_and_close(job: Job):
    if job.backend != "native" or job.sharded:
        model = mlp()
        with expect_error("compress"):
            job.distribute(sgd(model), model, compression="bf16")
        return

    def loop(*arguments):
        simple_loop(*arguments, steps=10, dtype=torch.float32)

    model, _, _ = job.compare(lambda: mlp(torch.float32), sgd, loop, tolerance=3e-2, compression="bf16")
    for parameter in model.parameters():
        copies = maypole.all_gather(parameter)
        assert all(torch.equal(copy, copies[0]) for copy in copies)
