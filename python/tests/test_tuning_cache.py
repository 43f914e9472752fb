# SPDX-License-Identifier: Apache-2.0
"""Groups that were tuned are kept for the next start, and never harm it."""

import json

import pytest
from jobs import run_job
from maypole.torch import tuning_cache
from maypole.torch.tuning_cache import TuningCache

SPECS = [("first.weight", 200_000, 0, 0), ("second.weight", 100_000, 0, 0)]  # float32: five blocks of 256 KiB
CUTS = [[0, 1, 3]]
TUNED_FOR = (8e-9, 0.25)
NETWORK = ("tcp", 5e-5, 8e-9)


def cache(folder, specs=SPECS, network=NETWORK, **settings):
    return TuningCache(folder, specs, {"workers": 2, "schedule": "weave", **settings}, network)


def test_what_was_kept_is_found_again(tmp_path):
    cache(tmp_path / "new").store(CUTS, TUNED_FOR, "chosen")
    assert cache(tmp_path / "new").load() == (CUTS, TUNED_FOR)
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".json"]  # nothing half written is left


@pytest.mark.parametrize(
    "other",
    [{"workers": 3}, {"schedule": "dear"}, {"specs": SPECS[:1]}, {"network": ("shm", 5e-5, 8e-9)}, {"specs": [SPECS[1], SPECS[0]]}],
)
def test_another_job_finds_nothing(tmp_path, other):
    cache(tmp_path).store(CUTS, TUNED_FOR, "")
    assert cache(tmp_path, **other).load() is None


def test_another_machine_finds_nothing(tmp_path, monkeypatch):
    cache(tmp_path).store(CUTS, TUNED_FOR, "")
    monkeypatch.setattr(tuning_cache, "machine", lambda: "another one")
    assert cache(tmp_path).load() is None


def test_networks_are_told_apart_where_they_differ_by_more_than_measurements_do(tmp_path):
    cache(tmp_path).store(CUTS, TUNED_FOR, "")
    slow = ("tcp", 5e-5, 32e-9)
    assert cache(tmp_path, network=slow).load() is None
    cache(tmp_path, network=slow).store([[0, 4]], TUNED_FOR, "")
    assert cache(tmp_path, network=("tcp", 9e-5, 28e-9)).load() == ([[0, 4]], TUNED_FOR)
    assert cache(tmp_path, network=("tcp", 3e-5, 9e-9)).load() == (CUTS, TUNED_FOR)
    assert cache(tmp_path, network=("tcp", 5e-3, 8e-9)).load() is None  # a start-up a hundred times as long


def test_a_later_choice_replaces_the_one_for_the_same_network_and_few_are_kept(tmp_path):
    cache(tmp_path).store(CUTS, TUNED_FOR, "")
    cache(tmp_path).store([[0, 2]], TUNED_FOR, "")
    assert cache(tmp_path).load() == ([[0, 2]], TUNED_FOR)
    for power in range(1, 15):
        cache(tmp_path, network=("tcp", 5e-5, 8e-9 * 2**power)).store(CUTS, TUNED_FOR, "")
    (file,) = tmp_path.iterdir()
    assert len(json.loads(file.read_text())["entries"]) == 8


def write(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


DAMAGE = {
    "nested deeply": lambda path: path.write_text("[" * 100_000),
    "cut off": lambda path: path.write_text(path.read_text()[:40]),
    "not JSON": lambda path: path.write_bytes(b"\xff\x00 nonsense"),
    "a list": lambda path: path.write_text("[]"),
    "another version": lambda path: write(path, lambda c: c.update(version=2)),
    "another subject": lambda path: write(path, lambda c: c["subject"].update(workers=9)),
    "no entries": lambda path: write(path, lambda c: c.pop("entries")),
    "a block that is not there": lambda path: write(path, lambda c: c["entries"][0].update(cuts=[[0, 99]])),
    "blocks that descend": lambda path: write(path, lambda c: c["entries"][0].update(cuts=[[0, 3, 1]])),
    "a word for a block": lambda path: write(path, lambda c: c["entries"][0].update(cuts=[[0, "x"]])),
    "an arena too many": lambda path: write(path, lambda c: c["entries"][0].update(cuts=[[0], [0]])),
    "a negative time": lambda path: write(path, lambda c: c["entries"][0].update(alpha_s=-1)),
    "no time": lambda path: write(path, lambda c: c["entries"][0].update(tuned_for=[1])),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_is_no_good_costs_one_line_and_is_replaced_by_the_next_choice(tmp_path, capsys, name):
    cache(tmp_path).store(CUTS, TUNED_FOR, "")
    (file,) = tmp_path.iterdir()
    DAMAGE[name](file)
    assert cache(tmp_path).load() is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(file) in said
    cache(tmp_path).store(CUTS, TUNED_FOR, "")
    assert cache(tmp_path).load() == (CUTS, TUNED_FOR)
    assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_written_costs_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    cache(tmp_path / "file" / "in it").store(CUTS, TUNED_FOR, "")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "not kept" in said


def test_the_folder_is_the_users_own_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("MAYPOLE_TUNING_CACHE", "off")
    assert tuning_cache.folder() is None
    cache(tuning_cache.folder()).store(CUTS, TUNED_FOR, "")
    assert cache(tuning_cache.folder()).load() is None
    monkeypatch.setenv("MAYPOLE_TUNING_CACHE", str(tmp_path))
    assert tuning_cache.folder() == tmp_path
    monkeypatch.delenv("MAYPOLE_TUNING_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert tuning_cache.folder() == tmp_path / "xdg" / "maypole"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tuning_cache.folder() == tmp_path / ".cache" / "maypole"


TRAIN = """
    import os, sys, torch, maypole.torch as maypole
    maypole.init()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(4)])
    optimizer = maypole.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, tuning_cache=sys.argv[1] == "yes")
    for step in range(70):
        optimizer.zero_grad()
        model(torch.ones(2, 300)).sum().backward()
        optimizer.step()
    if maypole.rank() == 0:
        print(optimizer.report()["fusion"])
"""


def test_a_job_begins_with_what_the_one_before_has_found(tmp_path):
    environment = {"MAYPOLE_TUNING_CACHE": str(tmp_path)}
    first = run_job(2, TRAIN, "yes", **environment)
    assert first.returncode == 0, first.stderr
    assert "tried" in first.stdout
    (file,) = tmp_path.iterdir()
    # Measured anew on a busy machine, the network may look like any other.
    networks = [{"alpha_s": 8.0**a * 1e-7, "beta_s_per_byte": 1.6**b * 1e-11} for a in range(8) for b in range(40)]
    write(file, lambda content: content.update(entries=[{**content["entries"][0], **network} for network in networks]))
    second = run_job(2, TRAIN, "yes", **environment)
    assert second.returncode == 0, second.stderr
    assert "earlier run" in second.stdout or "again, since" in second.stdout, second.stdout
    before = file.read_bytes()
    third = run_job(2, TRAIN, "no", **environment)
    assert third.returncode == 0, third.stderr
    assert "earlier run" not in third.stdout
    assert file.read_bytes() == before


def test_a_damaged_file_does_not_keep_a_job_from_training(tmp_path):
    environment = {"MAYPOLE_TUNING_CACHE": str(tmp_path)}
    assert run_job(2, TRAIN, "yes", **environment).returncode == 0
    (file,) = tmp_path.iterdir()
    file.write_text("{")
    done = run_job(2, TRAIN, "yes", **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is not used") == 1
    assert "tried" in done.stdout
    assert json.loads(file.read_text())["version"] == 1  # replaced by what this job has found
