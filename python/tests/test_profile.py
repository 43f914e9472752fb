# SPDX-License-Identifier: Apache-2.0
"""`maypole profile`: what is measured of a script that trains."""

import json
import subprocess
import sys
import types

import pytest
from jobs import LIMIT_S, PROGRAM, ROOT

SCRIPT = """
import torch, maypole.torch as maypole
maypole.init()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(16, 50)  # defined first, used last
        self.embedding = torch.nn.Embedding(50, 16)
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.unused = torch.nn.Linear(3, 3)
    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.head(x + self.attention(x, x, x)[0])
net = Net()
optimizer = maypole.DistributedOptimizer(torch.optim.AdamW(net.parameters()), net)
for _ in range(STEPS):
    tokens = torch.randint(50, (6, 8))
    optimizer.zero_grad()
    with torch.no_grad():
        net(tokens)  # an evaluation in between counts for nothing
    torch.nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
print("the script went on")
"""


def profile(folder, *options, steps=10000):
    path = folder / "profile.json"
    command = [str(PROGRAM), "profile", "-o", str(path), *options, "--", sys.executable, "-c", SCRIPT.replace("STEPS", str(steps))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "python")}
    )
    return done, path


@pytest.mark.parametrize("ranks", [1, 2])
def test_layers_and_tensors_come_in_the_order_of_first_use(tmp_path, ranks):
    done, path = profile(tmp_path, "-n", str(ranks), "--iterations", "7")
    assert done.returncode == 0, done.stderr
    assert "the script went on" not in done.stdout
    found = json.loads(path.read_text())
    assert [layer["name"] for layer in found["layers"]] == ["embedding", "attention", "head"]
    assert [(tensor["name"], tensor["layer"], tensor["elements"]) for tensor in found["tensors"]] == [
        ("embedding.weight", "embedding", 800),
        ("attention.in_proj_weight", "attention", 768),
        ("attention.in_proj_bias", "attention", 48),
        ("attention.out_proj.weight", "attention", 256),  # whose own module is never called
        ("attention.out_proj.bias", "attention", 16),
        ("head.weight", "head", 800),
        ("head.bias", "head", 50),
    ]
    assert all(layer["forward_s"] > 0 and layer["backward_s"] > 0 for layer in found["layers"])
    assert found["batch"] == 6 and found["modelled"] is False and found["update_s"] > 0
    assert (found["ring"] is None) == (ranks == 1)
    if ranks > 1:
        assert found["ring"]["workers"] == ranks and found["ring"]["alpha_s"] > 0 and found["ring"]["beta_s_per_byte"] > 0
    assert "forward" in done.stderr and "attention" in done.stderr  # the table


def test_the_ring_is_timed_by_what_a_larger_buffer_takes_more(monkeypatch):
    """A shaped link: 1 MB passes at once, then 10 MB/s; a start-up of 1 ms. The largest buffers are those that take long enough."""
    sys.path.insert(0, str(ROOT / "python"))
    from maypole.torch import profiling

    class Done:
        def wait(self, _limit):
            return True

    class Link:
        now = 0.0

        def barrier(self):
            return Done()

        def all_reduce(self, flat, average):
            if not average:
                Link.now += 1e-3 + max(0, flat.numel() * 4 - 1e6) / 10e6  # two ranks move as many bytes as the buffer has
            return Done()

    class Here:
        size = 2
        transport = Link()

        engine = types.SimpleNamespace(edge_cost=(7e-6, 1e-10))  # what the short measurement took the burst for

    monkeypatch.setattr(profiling.time, "perf_counter", lambda: Link.now)
    workers, alpha_s, beta_s_per_byte = profiling.measure_ring(Here)
    assert (workers, alpha_s) == (2, 7e-6)
    assert beta_s_per_byte == pytest.approx(1e-7, rel=0.02)


def test_a_script_that_ends_too_early_says_how_far_it_came(tmp_path):
    done, path = profile(tmp_path, steps=3)
    assert done.returncode == 1 and not path.exists()
    assert "ended after 3 pairs of forward and backward, of which 5 warm up" in done.stderr


def test_a_file_that_cannot_be_written_is_named_before_anything_starts(tmp_path):
    done, _ = profile(tmp_path / "no" / "such")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "-o" in done.stderr
