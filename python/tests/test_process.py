# SPDX-License-Identifier: Apache-2.0
"""From init() to the end of the process, and what survivors hear when a rank fails."""

import json
import os
import tempfile

import pytest
from jobs import run_job

TRAIN = """
import os, signal, sys
import torch
import maypole.torch as maypole
maypole.init()
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = maypole.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
"""


def test_a_world_of_one_installs_nothing_and_every_call_works():
    done = run_job(
        0,
        TRAIN
        + """
assert (maypole.rank(), maypole.size(), maypole.local_rank()) == (0, 1, 0)
train(3)
for parameter in model.parameters():
    assert type(parameter) is torch.nn.Parameter and not parameter._backward_hooks and not parameter._post_accumulate_grad_hooks
assert not model._forward_pre_hooks and not model._forward_hooks
with optimizer.no_sync(), optimizer.join():
    model(torch.randn(4, 8)).mean().backward()
optimizer.synchronize(); optimizer.flush()
assert optimizer.clip_grad_norm_(1.0) > 0
optimizer.step(lambda: model(torch.randn(4, 8)).mean())
optimizer.load_state_dict(optimizer.state_dict())
assert maypole.all_reduce(3.0) == 3.0 and maypole.all_reduce(torch.ones(2), 'sum').tolist() == [1, 1]
assert maypole.all_gather(torch.ones(2)).shape == (1, 2) and maypole.broadcast_object('x') == 'x'
maypole.barrier(); maypole.broadcast(torch.ones(1))
assert len(list(maypole.DistributedSampler(range(5)))) == 5
assert optimizer.report()['world_size'] == 1
optimizer.add_param_group({'params': [torch.nn.Parameter(torch.zeros(2))]})
assert len(optimizer.param_groups) == 2
""",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("group_size='8 megs'", "8 megs"),
        ("group_size=-1", "group_size is 'auto', 'plan', 'tune' or a positive number of bytes, not -1"),
        ("update='sharded', compression='bf16'", "compression='bf16' rounds gradients"),
    ],
)
def test_a_world_of_one_refuses_the_options_that_more_ranks_refuse(options, said):
    done = run_job(0, TRAIN.replace(", model)\ndef", f", model, {options})\ndef"))
    assert done.returncode == 1
    assert "UsageError" in done.stderr and said in done.stderr


def test_calls_before_init_say_so():
    done = run_job(0, "import maypole.torch as maypole\nmaypole.rank()")
    assert "call maypole.init() first" in done.stderr


PLAIN = TRAIN.replace(
    "maypole.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model)", "torch.optim.AdamW(model.parameters())"
)
APART = "without a maypole.DistributedOptimizer: the 2 workers train apart"


@pytest.mark.parametrize(("steps", "said"), [(3, "3 steps of AdamW"), (1, "1 step of AdamW"), (50, "20 steps of AdamW")])
def test_ranks_that_train_apart_are_told_once(steps, said):
    done = run_job(2, PLAIN + f"train({steps})")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"{said} {APART}") == 1 and done.stderr.count("train apart") == 1


def test_an_optimizer_that_was_forgotten_beside_another_is_named():
    done = run_job(2, TRAIN + "critic = torch.optim.SGD([torch.nn.Parameter(torch.zeros(9))])\ntrain(2)\ncritic.step()")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"1 step of SGD {APART}") == 1


@pytest.mark.parametrize(
    "ending",
    [
        TRAIN + "train(30)",
        TRAIN.replace("AdamW", "LBFGS").replace("lr=1e-2", "lr=1")
        + "def loss():\n    value = model(torch.ones(4, 8)).square().mean()\n    value.backward()\n    return value\noptimizer.step(loss)",
        PLAIN + "optimizer.step()\nfor p in model.parameters(): maypole.all_reduce(p)",
        PLAIN + "torch.distributed.init_process_group('gloo')\noptimizer.step()",
        PLAIN + "maypole.all_reduce(torch.ones(2))",
    ],
    ids=["distributed", "an-optimizer-of-torch", "averages-by-hand", "has-a-group", "does-not-train"],
)
def test_who_does_not_train_apart_is_told_nothing(ending):
    done = run_job(2, ending)
    assert done.returncode == 0, done.stderr
    assert "train apart" not in done.stderr


def test_without_pytorch_one_line_says_so():
    for found in ("", "import os, sys, tempfile\nsys.path.insert(0, tempfile.mkdtemp())\nos.mkdir(sys.path[0] + '/torch')\n"):
        hidden = "import sys\nsys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        done = run_job(0, hidden + found + "import maypole.torch as maypole\nmaypole.init()")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("ImportError: maypole.torch needs PyTorch, which ")


def test_what_lies_in_the_front_end_is_named_where_it_is_looked_for_in_the_package():
    done = run_job(0, "import maypole\nmaypole.init()")
    assert done.stderr.splitlines()[-1] == (
        "AttributeError: maypole.init is part of the PyTorch front end: write `import maypole.torch as maypole`"
    )


def test_a_failing_rank_is_named_with_its_error():
    script = TRAIN + ("train(3)\nif maypole.rank() == 1:\n    raise ValueError('out of cheese')\ntrain(100000)")
    done = run_job(3, script)
    assert done.returncode == 1
    assert done.stderr.count("PeerLostError: rank 1 is lost: it failed with ValueError: out of cheese") == 2
    assert done.stderr.rstrip().endswith("ValueError: out of cheese")


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "sys.exit(3)"])
def test_a_rank_that_ends_with_a_bad_exit_status_is_named_and_its_status_kept(end):
    done = run_job(3, TRAIN + f"train(3)\nif maypole.rank() == 1:\n    {end}\ntrain(100000)")
    assert done.returncode == 3
    assert done.stderr.count("PeerLostError: rank 1 is lost: it ended with exit status 3") == 2
    assert "rank 1 on host localhost failed with exit code 3" in done.stderr


def test_an_exit_that_the_script_takes_back_is_no_failure():
    done = run_job(2, TRAIN + "train(3)\ntry:\n    sys.exit(3)\nexcept SystemExit:\n    train(3)\n")
    assert done.returncode == 0, done.stderr


def test_a_killed_rank_is_named():
    done = run_job(2, TRAIN + "train(3)\nif maypole.rank() == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ntrain(100000)")
    assert done.returncode == 137
    assert "PeerLostError: rank 1" in done.stderr


def test_data_loader_workers_that_are_killed_leave_no_folder():
    script = (
        TRAIN
        + """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=4, num_workers=2)
for number, _ in enumerate(loader):
    train(1)
    if number == 3 and maypole.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    with tempfile.TemporaryDirectory() as folder:  # tmp_path is too long for the names of sockets
        done = run_job(2, script, TMPDIR=folder)
        assert done.returncode == 137
        assert [name for name in os.listdir(folder) if name.startswith(("pymp-", "maypole-"))] == []


@pytest.mark.parametrize("end", ["optimizer.close()", "del optimizer"])
def test_optimizers_that_come_one_after_the_other_leave_no_memory_behind(end):
    script = """
import gc, torch, maypole.torch as maypole
maypole.init()
model = torch.nn.Linear(300, 300)
def train():
    optimizer = maypole.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-3), model)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(2, 300)).mean().backward()
        optimizer.step()
    END
    gc.collect()
def arenas():
    with open('/proc/self/maps') as maps:
        return sum('memfd:maypole' in line for line in maps)
for number in range(12):
    train()
    if number == 3:
        before = arenas()
model.zero_grad()
print('arenas', before, arenas())
assert arenas() < before + 16  # peers unmap a little later; every optimizer has four
""".replace("END", end)
    done = run_job(2, script)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ranks_of_which_one_closes_its_optimizer_and_the_other_trains_on_are_told():
    done = run_job(2, TRAIN + "train(3)\nif maypole.rank() == 1:\n    optimizer.close()\ntrain(3)")
    assert done.returncode == 1
    assert "disagree" in done.stderr


def test_uneven_data_without_join_names_the_rank_that_ended():
    done = run_job(2, TRAIN + "train(3 if maypole.rank() == 1 else 100000)")
    assert done.returncode != 0
    assert "rank 1" in done.stderr


def test_models_that_differ_between_ranks_are_named():
    done = run_job(
        3,
        """
import torch, maypole.torch as maypole
maypole.init()
model = torch.nn.Linear(8, 3 if maypole.rank() == 2 else 4)
maypole.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=.1), model)
""",
    )
    assert done.returncode == 1
    assert done.stderr.count("rank 2 has 'weight torch.float32 (3, 8)' where rank 0 has 'weight torch.float32 (4, 8)'") >= 2


def test_settings_that_differ_between_ranks_are_named():
    done = run_job(2, TRAIN.replace(", model)\ndef", ", model, schedule=['dear', 'weave'][maypole.rank()])\ndef"))
    assert "the ranks disagree on the optimizer's settings" in done.stderr


@pytest.mark.parametrize("update", ["replicated", "sharded"])
def test_optimizer_options_that_differ_between_ranks_are_named(update):
    script = TRAIN.replace("lr=1e-2", "lr=[1e-2, 2e-2][maypole.rank()]").replace(", model)\ndef", f", model, update='{update}')\ndef")
    done = run_job(2, script + "train(3)")
    assert done.returncode == 1
    assert "rank 1 has 'lr=0.02 in parameter group 0' where rank 0 has 'lr=0.01 in parameter group 0'" in done.stderr


def test_ranks_that_finish_groups_in_different_orders_never_wait_for_each_other_in_a_circle():
    # With a limit on all-gathers in motion each rank held as many as it may, of groups that the other had not supplied yet.
    script = """
import time, torch, maypole.torch as maypole
maypole.init()
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(24)))  # 4 MiB each
optimizer = maypole.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, group_size="1MiB")
model[12].register_full_backward_hook(lambda *_: time.sleep(0.05 * maypole.rank()))
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 1024)).mean().backward()
    time.sleep(0.05 * (1 - maypole.rank()))
    optimizer.step()
"""
    done = run_job(2, script, options=("--timeout", "15s"))
    assert done.returncode == 0, done.stderr


def test_a_learning_rate_that_one_rank_alone_changes_is_named():
    done = run_job(2, TRAIN + "train(3)\nif maypole.rank() == 1:\n    optimizer.param_groups[0]['lr'] = 0.5\ntrain(200)")
    assert done.returncode == 1
    assert "rank 1 has 'lr=0.5 in parameter group 0' where rank 0 has 'lr=0.01 in parameter group 0'" in done.stderr


def test_epochs_of_different_lengths_under_a_scheduler_are_told_about_batches_and_join():
    script = """
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
for epoch in range(20):
    train(3 + maypole.rank())
    scheduler.step()
"""
    done = run_job(2, TRAIN + script)
    assert done.returncode == 1
    assert "has 'lr=" in done.stderr and "different numbers of batches" in done.stderr and "optimizer.join()" in done.stderr


def test_a_rank_that_never_comes_is_named_within_the_start_timeout():
    script = "import os, time\nif os.environ['RANK'] == '1':\n    time.sleep(60)\n" + TRAIN
    done = run_job(2, script, options=("--start-timeout", "2s"))
    assert done.returncode != 0
    assert "rank 1 of 2 did not come to rank 0" in done.stderr


def test_report_and_timeline_are_left_for_the_launcher(tmp_path):
    report, timeline = tmp_path / "report.json", tmp_path / "timeline.json"
    done = run_job(2, TRAIN + "train(30)", options=("--report", str(report), "--timeline", str(timeline), "--schedule", "dear"))
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["schedule"] == "dear" and found["world_size"] == 2 and found["iteration_s"] > 0 and found["groups"]
    assert timeline.stat().st_size > 100


def test_a_full_disk_for_the_timeline_is_one_line():
    script = "import os\nos.environ['MAYPOLE_TIMELINE_DIR'] = os.environ['MAYPOLE_REPORT_DIR'] = '/dev/full'\n" + TRAIN + "train(3)"
    done = run_job(2, script)
    assert done.returncode == 0
    assert done.stderr.count("the timeline was not written") == 2 and "Traceback" not in done.stderr


def test_a_forked_child_is_no_member_and_may_exit():
    script = (
        TRAIN
        + """
train(3)
child = os.fork()
if child == 0:
    try:
        maypole.all_reduce(1.0)
    except maypole.ClosedError as error:
        print(error, flush=True)
    sys.exit(0)
os.waitpid(child, 0)
train(3)
"""
    )
    done = run_job(2, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("not a member of the job") == 2


def test_torchruns_variables_are_enough():
    done = run_job(
        2, "import os\nfor name in list(os.environ):\n    if name.startswith('MAYPOLE_'): del os.environ[name]\n" + TRAIN + "train(3)"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", ["native", "c10d"])
def test_torchrun_starts_what_maypole_run_starts(tmp_path, backend):
    script = tmp_path / "train.py"
    script.write_text(
        TRAIN
        + """
train(3)
seen = maypole.all_gather(model[0].weight)
assert torch.equal(seen[0], seen[1])
if maypole.rank() == 1:
    print("trained on", maypole.size())
"""
    )
    torchrun = "import sys\nfrom torch.distributed.run import main\nmain(sys.argv[1:])"
    done = run_job(0, torchrun, "--standalone", "--nproc_per_node", 2, script, MAYPOLE_BACKEND=backend)
    assert done.returncode == 0, done.stderr
    assert "trained on 2" in done.stdout


def test_no_thread_of_a_process_group_outlives_the_end_of_training():
    script = """
import atexit, os
@atexit.register  # before maypole's: it comes after it
def look():
    names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
    print("left:", names.count("pt_gloo_runloop"))
"""
    done = run_job(2, script + TRAIN + "train(2)", MAYPOLE_BACKEND="c10d")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("left: 0") == 2, done.stdout


def test_a_limit_of_open_files_that_is_too_low_is_one_line_that_says_so():
    script = """
import resource
train(2)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
model = torch.nn.Linear(8, 8)
optimizer = maypole.DistributedOptimizer(torch.optim.AdamW(model.parameters()), model)
train(2)
"""
    done = run_job(2, TRAIN + script)
    assert done.returncode == 1
    assert "shared memory: Too many open files; raise the limit, as `ulimit -n 1024` does" in done.stderr
    assert "check failed" not in done.stderr
