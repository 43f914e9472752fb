# SPDX-License-Identifier: Apache-2.0
import maypole.torch as maypole
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cases import Job, adamw, batches, case, expect_close, expect_equal, expect_error, loss_of, mlp, sgd, share, simple_loop


class Checkpointed(nn.Module):
    """Uses its middle layer twice, in two checkpoints."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.first, self.middle, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.double()

    def forward(self, inputs):
        hidden = self.first(inputs)
        for _ in range(2):
            hidden = torch.tanh(checkpoint(self.middle, hidden, use_reentrant=self.reentrant))
        return self.last(hidden)


@case
def activation_checkpointing_of_both_kinds(job: Job):
    for reentrant in (False, True):
        job.compare(lambda reentrant=reentrant: Checkpointed(reentrant), adamw, simple_loop)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(10, 16), nn.Linear(16, 16), nn.Linear(16, 10, bias=False)
        self.head.weight = self.embedding.weight
        self.double()

    def forward(self, inputs):
        return self.head(torch.tanh(self.body(self.embedding((inputs.abs() * 3).long().clamp(max=9))))).mean(1)[:, :3]


@case
def shared_weights(job: Job):
    job.compare(Tied, sgd, simple_loop)


class Branches(nn.Module):
    """A frozen, a never used and a sometimes used part."""

    def __init__(self):
        super().__init__()
        self.frozen, self.unused, self.sometimes, self.always = (nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 3)
        self.frozen.requires_grad_(False)
        self.double()
        self.take = False

    def forward(self, inputs):
        hidden = self.always(self.frozen(inputs))
        if self.take:
            hidden = hidden + self.sometimes(inputs)
        return self.head(hidden)


@case
def frozen_unused_and_sometimes_used_parameters(job: Job):
    def loop(model, optimizer, part):
        for k, batch in enumerate(batches(8)):
            model.take = k % 3 == 1
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            optimizer.step()

    job.compare(Branches, adamw, loop)
    job.compare(Branches, sgd, loop)


@case
def a_parameter_that_only_one_rank_uses_is_averaged_with_zeros(job: Job):
    def loop(model, optimizer, part):
        plain = part(torch.arange(12)).numel() == 12
        for k, (inputs, classes) in enumerate(batches(6)):
            optimizer.zero_grad()
            if plain:
                loss = 0.0
                for r in range(maypole.size()):
                    model.take = k % 2 == 0 and r == 0
                    rows = slice(r, None, maypole.size())
                    loss = loss + nn.functional.cross_entropy(model(inputs[rows]), classes[rows]) / maypole.size()
            else:
                model.take = k % 2 == 0 and maypole.rank() == 0
                loss = loss_of(model, part, (inputs, classes))
            loss.backward()
            optimizer.step()

    job.compare(Branches, adamw, loop)


@case
def a_parameter_that_only_one_rank_uses_adds_up_without_zero_grad(job: Job):
    if job.sharded:
        return  # an error, in without_zero_grad_gradients_add_up_over_steps

    def loop(model, optimizer, part):
        plain = part(torch.arange(12)).numel() == 12
        for k, (inputs, classes) in enumerate(batches(6)):
            if plain:
                loss = 0.0
                for r in range(maypole.size()):
                    model.take = k < 4 and r == 0
                    rows = slice(r, None, maypole.size())
                    loss = loss + nn.functional.cross_entropy(model(inputs[rows]), classes[rows]) / maypole.size()
            else:
                model.take = k < 4 and maypole.rank() == 0
                loss = loss_of(model, part, (inputs, classes))
            loss.backward()
            optimizer.step()

    job.compare(Branches, sgd, loop)


@case
def a_parameter_unfrozen_in_mid_training_is_trained(job: Job):
    def loop(model, optimizer, part):
        for k, batch in enumerate(batches(8)):
            model.frozen.requires_grad_(k >= 3)
            model.always.requires_grad_(k < 6)
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            optimizer.step()

    job.compare(Branches, sgd, loop)


class Attention(nn.Module):
    """Parameters used by others than their owner: MultiheadAttention reads out_proj itself, LSTM flattens its own."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.ones(8))
        self.double()

    def forward(self, inputs):
        sequence = inputs.unsqueeze(1) * torch.linspace(0.5, 1, 4, dtype=inputs.dtype).view(1, 4, 1)
        hidden, _ = self.attention(sequence, sequence, sequence)
        hidden, _ = self.recurrent(self.norm(hidden) * self.scale)
        return {"outputs": [self.head(hidden[:, -1])]}


@case
def attention_and_recurrent_modules_wait_for_what_they_use(job: Job):
    def loop(model, optimizer, part):
        for inputs, classes in batches(6):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(part(inputs))["outputs"][0], part(classes)).backward()
            optimizer.step()

    job.compare(Attention, adamw, loop)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 3)
        self.double()

    def forward(self, inputs):
        image = inputs.view(-1, 1, 2, 4).to(memory_format=torch.channels_last)
        return self.head(torch.relu(self.norm(self.second(self.first(image)))).mean((2, 3)))


@case
def channels_last_survives(job: Job):
    def build():
        model = Convolutional().to(memory_format=torch.channels_last)
        model.norm.eval()
        for parameter in model.norm.parameters():
            parameter.requires_grad_(False)
        return model

    model, _, _ = job.compare(build, sgd, simple_loop)
    weight = model.second.weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


@case
def batchnorm_buffers_are_rank_0s(job: Job):
    torch.manual_seed(0)
    model = Convolutional()
    mirror = Convolutional()  # what rank 0 alone would have measured, with everyone's weights
    optimizer = job.distribute(sgd(model), model)
    for inputs, classes in batches(5):
        optimizer.zero_grad()
        mirror.load_state_dict({**model.state_dict(), **dict(mirror.named_buffers())})
        mirror(inputs[0 :: maypole.size()])
        nn.functional.cross_entropy(model(share(inputs)), share(classes)).backward()
        optimizer.step()
        state = model.state_dict()
        for name, buffer in mirror.named_buffers():
            expect_close(state[name], buffer, name=name)
    model.eval()
    outputs = model(batches(1)[0][0])
    copies = maypole.all_gather(outputs)
    assert all(torch.equal(copy, copies[0]) for copy in copies)


@case
def compiled_models_wait_at_the_root(job: Job):
    seen = []

    def backend(graph, _):
        seen.append(graph)
        return graph

    def wrapped_after(model, optimizer, part):
        simple_loop(torch.compile(model, backend=backend), optimizer, part)

    def in_place(model, optimizer, part):
        model.compile(backend=backend)
        simple_loop(model, optimizer, part)

    def one_layer(model, optimizer, part):
        model[2].compile(backend=backend)
        simple_loop(model, optimizer, part)

    for loop in (wrapped_after, in_place, one_layer):
        torch._dynamo.reset()
        _, optimizer, _ = job.compare(mlp, adamw, loop)
        assert "torch.compile" in optimizer.report()["waits"], loop.__name__
    torch._dynamo.reset()
    reference, model = mlp(), mlp()
    model.load_state_dict(reference.state_dict())
    compiled = torch.compile(model, backend=backend)
    optimizer = job.distribute(sgd(model), compiled)
    for parameter, other in zip(reference.parameters(), model.parameters()):
        other.data.copy_(parameter.data)
    maypole.broadcast(torch.zeros(1))
    simple_loop(compiled, optimizer, share)
    assert len(seen) <= 16, f"{len(seen)} graphs: the guard makes torch.compile start again"


class Unsteady(nn.Module):
    """How often the middle layer is used, each time in a checkpoint of its own, is the script's choice."""

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.times = 1
        self.double()

    def forward(self, inputs):
        hidden = self.first(inputs)
        for _ in range(self.times):
            hidden = torch.tanh(checkpoint(self.middle, hidden, use_reentrant=True))
        return self.last(hidden)


@case
def a_second_gradient_of_a_moving_parameter_is_an_error_by_name_or_right(job: Job):
    def loop(model, optimizer, part):
        for k, batch in enumerate(batches(4)):
            model.times = 1 if k < 2 else 2
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            optimizer.step()

    if job.schedule == "sync":
        job.compare(Unsteady, sgd, loop)
        return
    model = Unsteady()
    optimizer = job.distribute(sgd(model), model)
    with expect_error("middle", "schedule='sync'", "use_reentrant=False"):
        loop(model, optimizer, share)
    optimizer.zero_grad()  # all ranks stopped at the same place, and go on
    model.times = 1
    simple_loop(model, optimizer, share, steps=2)


@case
def dataloader_workers_are_no_members(job: Job):
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, k):
            return torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(k)), k % 3

    model = mlp()
    optimizer = job.distribute(sgd(model), model)
    sampler = maypole.DistributedSampler(Data(), shuffle=True)
    loader = torch.utils.data.DataLoader(Data(), batch_size=2, sampler=sampler, num_workers=2)
    seen = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, lambda b: b, batch).backward()
            optimizer.step()
            seen += len(batch[1])
    assert maypole.all_reduce(seen, "sum") == 48
    reference = mlp()
    reference.load_state_dict(model.state_dict())
    expect_equal(model, reference, 0.0)


@case
def gradients_of_torch_func_are_the_scripts_own(job: Job):
    def loop(model, optimizer, part):
        for inputs, classes in batches(4):
            parameters = dict(model.named_parameters())

            def loss(values, inputs=inputs, classes=classes):
                outputs = torch.func.functional_call(model, values, (part(inputs),))
                return nn.functional.cross_entropy(outputs, part(classes))

            gradients = torch.func.grad(loss)({name: parameter.detach() for name, parameter in parameters.items()})
            optimizer.zero_grad()
            for name, parameter in parameters.items():
                parameter.grad = gradients[name]
            optimizer.step()

    job.compare(mlp, sgd, loop)


@case
def a_compiled_model_is_evaluated_after_step_without_zero_grad(job: Job):
    def loop(model, optimizer, part):
        compiled = torch.compile(model, backend="eager")
        for _ in range(2):
            simple_loop(compiled, optimizer, part, steps=2)
            with torch.no_grad():
                loop.outputs.append(compiled(batches(1)[0][0]))

    loop.outputs = []
    torch._dynamo.reset()
    model, _optimizer, _ = job.compare(mlp, sgd, loop)
    for expected, actual in zip(loop.outputs[:2], loop.outputs[2:]):
        expect_close(actual, expected)
    if job.sharded:
        with expect_error("synchronize()"):
            model[0].weight.grad.norm()
