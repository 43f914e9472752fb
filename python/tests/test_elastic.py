# SPDX-License-Identifier: Apache-2.0
"""Workers come, go and are lost while a run trains: what is learned stays what one process would have learned."""

import pytest
from elastic_jobs import ElasticRun, check_digests, check_ledgers, check_weights, lines_of, sizes
from maypole.torch.elastic import shards


def check_all(folder, num_steps=30, by=("step",), **settings):
    batches = check_ledgers(folder, num_steps=num_steps)
    check_digests(folder, by)
    check_weights(folder, batches, **settings)


@pytest.mark.parametrize(
    ("optimizer", "schedule", "path"), [("adamw", "weave", [1, 4, 2]), ("sgd", "dear", [2, 3]), ("nadam", "weave", [3, 1])]
)
def test_a_run_grows_and_shrinks_without_a_trace_in_the_weights(tmp_path, optimizer, schedule, path):
    settings = {"optimizer": optimizer, "schedule": schedule, "pause": 0.01, "until_end": True, "epochs": 1000}
    options = ("--bandwidth", "400Mbps") if path == [2, 3] else ()
    with ElasticRun(tmp_path, start=path[0], options=options, **settings) as run:
        run.wait_for_step(2)
        for before, after in zip(path, path[1:]):
            answer = run.resize(after)
            assert answer.returncode == 0 and f"{before} -> {after} worker" in answer.stdout, answer
        output = run.finish(end=True)
    assert f"with {len(path) - 1} resize" in output and "0 workers lost" in output
    assert sizes(tmp_path) == path
    check_all(tmp_path, num_steps=None, optimizer=optimizer)
    if path == [2, 3]:  # newcomers know the groups before they have seen an iteration
        lines = lines_of(tmp_path, "digests").values()
        assert all(line["paced"] for of_worker in lines for line in of_worker), "as each announcement says"
        assert all(next(line["groups"] for line in of_worker if line["workers"] == 3) > 0 for of_worker in lines)


@pytest.mark.parametrize("places", [[(0, "forward"), (2, "backward"), (1, "reduced")], [(0, "averaged"), (1, "stepped"), (3, "stepped")]])
def test_killed_workers_cost_at_most_a_repeated_step_each(tmp_path, places):
    faults = [{"worker": worker, "step": 5 + 8 * k, "where": where, "do": "kill"} for k, (worker, where) in enumerate(places)]
    with ElasticRun(tmp_path, start=4, faults=faults) as run:
        output = run.finish()
    for worker, _ in places:
        assert f"worker {worker} was killed by SIGKILL; no retries are left" in output
    assert sizes(tmp_path) == [4, 3, 2, 1]
    check_all(tmp_path)


@pytest.mark.parametrize(("schedule", "optimizer"), [("weave", "adamw"), ("dear", "sgd")])
def test_updates_that_run_behind_step_are_whole_or_taken_back(tmp_path, schedule, optimizer):
    # Nothing brings updates to rest between two steps here. The last kill leaves one worker of four.
    cuts = [(2, 3, "reduced"), (0, 7, "stepped"), (1, 11, "inside"), (3, 14, "averaged")]
    kills = [(1, 17, "stepped"), (0, 21, "inside"), (3, 25, "reduced")]
    faults = [
        {"worker": worker, "step": step, "where": where, "do": do}
        for do, places in (("cut", cuts), ("kill", kills))
        for worker, step, where in places
    ]
    settings = {"width": 400, "group_size": 8192, "optimizer": optimizer, "schedule": schedule}
    with ElasticRun(tmp_path, start=4, faults=faults, digests=False, evaluate=[7, 17], **settings) as run:
        run.finish()
    assert sizes(tmp_path) == [4, 3, 2, 1]
    check_all(tmp_path, **settings)


def test_without_undo_step_waits_for_what_it_cannot_take_back(tmp_path):
    faults = [{"worker": 1, "step": step, "where": where, "do": "cut"} for step, where in ((7, "stepped"), (14, "inside"))]
    settings = {"width": 400, "group_size": 8192}
    with ElasticRun(tmp_path, start=3, faults=faults, digests=False, options=["--no-undo"], epochs=2, **settings) as run:
        run.finish()
    assert undone(tmp_path) == {}
    check_all(tmp_path, num_steps=20, **settings)


def test_a_killed_worker_is_replaced(tmp_path):
    faults = [{"worker": 1, "step": 5, "where": "backward", "do": "kill"}]
    with ElasticRun(tmp_path, start=2, retries=1, faults=faults, workers="2:8") as run:
        output = run.finish()
    assert "training waits: 1 of at least 2 workers live, and a replacement is starting" in output
    assert "worker 2 ended as rank 1 of 2" in output
    assert sizes(tmp_path) == [2]
    check_all(tmp_path)


def test_a_frozen_worker_is_ended_and_the_others_go_on(tmp_path):
    faults = [{"worker": 1, "step": 5, "where": "backward", "do": "stop"}]
    with ElasticRun(tmp_path, start=3, heartbeat="8s", faults=faults) as run:
        output = run.finish()
    assert "worker 1 gave no sign of life for" in output
    assert sizes(tmp_path) == [3, 2]
    check_all(tmp_path)


def test_whoever_ends_early_waits_for_the_others_and_is_not_taken_for_dead(tmp_path):
    with ElasticRun(tmp_path, heartbeat="2s", linger=5.0, epochs=1) as run:
        assert "0 workers lost" in run.finish()


def test_a_newcomer_with_another_model_or_dtype_is_refused_and_training_goes_on(tmp_path):
    with ElasticRun(tmp_path, start=2, other_model=[2], other_dtype=[3], hold_at=3) as run:
        run.wait_for_step(3)
        answer = run.resize(3)
        assert answer.returncode == 1
        assert (
            "worker 2 was refused: it has '0.weight torch.float64 (17, 6)' where the run has '0.weight torch.float64 (16, 6)'"
            in answer.stderr
        )
        answer = run.resize(3)
        assert answer.returncode == 1
        assert "it has '0.weight torch.float32 (16, 6)' where the run has '0.weight torch.float64 (16, 6)'" in answer.stderr
        run.go()
        run.finish()
    assert sizes(tmp_path) == [2]


def test_dropout_and_running_statistics_are_the_same_on_all_members(tmp_path):
    with ElasticRun(tmp_path, start=2, dropout=True, batch_norm=True, pause=0.01, until_end=True, epochs=1000) as run:
        run.wait_for_step(3)
        assert run.resize(3).returncode == 0
        run.finish(end=True)
    assert sizes(tmp_path) == [2, 3]
    check_ledgers(tmp_path, num_steps=None)
    check_digests(tmp_path)


def test_resizes_that_cannot_be_are_refused_in_a_line_and_the_ledger_lists_the_share_of_each_worker(tmp_path):
    with ElasticRun(tmp_path, workers="2:4", start=3, hold_at=2, epochs=1) as run:
        run.wait_for_step(2)
        for arguments, code, words in (
            (["3"], 2, "the run has 3 workers already"),
            (["5"], 2, "5 workers is outside of --workers 2:4"),
            (["1:3"], 2, "1:3 is outside of --workers 2:4"),
            (["x"], 2, "'x' is no number of workers"),
        ):
            answer = run.resize(*arguments)
            assert (answer.returncode, answer.stdout) == (code, ""), answer
            assert words in answer.stderr and answer.stderr.count("\n") == 1
        run.go()
        run.finish()
    answer = run.resize(2)
    assert answer.returncode == 2 and "no elastic run named" in answer.stderr
    ledgers = lines_of(tmp_path, "ledger")
    assert [len(ledgers[worker][0]["share"]) for worker in range(3)] == [7, 7, 6]
    assert sum((ledgers[worker][0]["share"] for worker in range(3)), []) == ledgers[0][0]["samples"]


def undone(folder):
    """The steps from which on workers began again, for each change of epoch."""
    lines = [line for lines in lines_of(folder, "ledger").values() for line in lines]
    return {line["epoch"]: line["step"] for line in lines if line["how"] == "undone"}


def test_shards_move_to_their_new_owners(tmp_path):
    with ElasticRun(tmp_path, start=1, pause=0.01, until_end=True, epochs=1000, update="sharded", slow_to_load=[1]) as run:
        run.wait_for_step(2)
        for workers in (3, 2):
            assert run.resize(workers).returncode == 0
        run.finish(end=True)
    assert sizes(tmp_path) == [1, 3, 2]
    assert undone(tmp_path) == {}
    check_all(tmp_path, num_steps=None)


def test_a_lost_shard_is_taken_from_its_copy(tmp_path):
    faults = [{"worker": 1, "step": 9, "where": "stepped", "do": "kill"}, {"worker": 0, "step": 19, "where": "backward", "do": "kill"}]
    with ElasticRun(tmp_path, start=3, faults=faults, update="sharded", optimizer="sgd", schedule="dear", pause=0.02) as run:
        output = run.finish()
    assert "copied to the next worker, which a lost host would take along" in output
    assert sizes(tmp_path) == [3, 2, 1]
    check_all(tmp_path, by=("step", "workers"), optimizer="sgd")


def test_a_copy_that_was_under_way_for_many_steps_is_as_good(tmp_path):
    faults = [{"worker": 1, "step": 28, "where": "forward", "do": "kill"}]
    with ElasticRun(tmp_path, start=3, faults=faults, update="sharded", late_copies=True, pause=0.02) as run:
        run.finish()
    assert sizes(tmp_path) == [3, 2]
    check_all(tmp_path, by=("step", "workers"))


def test_with_nobody_lost_a_broken_step_of_shards_is_repeated_alone(tmp_path):
    places = [(1, 7, "forward"), (0, 14, "backward"), (2, 21, "stepped")]
    faults = [{"worker": worker, "step": step, "where": where, "do": "cut"} for worker, step, where in places]
    with ElasticRun(tmp_path, start=3, faults=faults, update="sharded") as run:
        output = run.finish()
    assert output.count("maypole: epoch ") == 3
    # A cut may be seen a step later; what a worker takes back is the last step it had made, and no more.
    for lines in lines_of(tmp_path, "ledger").values():
        for before, line in zip(lines, lines[1:]):
            assert line["how"] != "undone" or (before["how"], before["step"]) == ("done", line["step"]), lines
    assert sizes(tmp_path) == [3]
    check_all(tmp_path)


def test_what_survivors_go_on_from_is_the_latest_step_that_is_whole_between_them():
    nothing = {"wholes": [], "parts": [], "records": []}
    assert shards.choose([nothing, nothing]) is None
    # A ring of three that lost its last rank: rank 0 holds the copy of it; the step under way is gone with it.
    first = {"wholes": [], "parts": [[7, 1, 3, 0], [4, 1, 3, 0], [4, 1, 3, 2]], "records": [4, 6, 7]}
    second = {"wholes": [], "parts": [[7, 1, 3, 1], [6, 1, 3, 1], [4, 1, 3, 1]], "records": [4, 6, 7]}
    assert shards.choose([first, second, nothing]) == (4, 0, None, [([4, 1, 3, 0], 0), ([4, 1, 3, 1], 1), ([4, 1, 3, 2], 0)])
    third = {"wholes": [], "parts": [[7, 1, 3, 2], [6, 1, 3, 2]], "records": [6]}
    assert shards.choose([first, second, third])[:3] == (7, 0, None)
    # Parts of different rings do not go together, nor does a step without its record.
    assert shards.choose([{**first, "parts": [[7, 2, 3, 0]]}, second, third]) is None
    assert shards.choose([{**offer, "records": []} for offer in (first, second, third)]) is None
    assert shards.choose([nothing, {"wholes": [5], "parts": [], "records": [5]}, first]) == (5, 1, 1, [])


def test_copies_of_shards_lie_on_another_host_where_there_is_one():
    assert shards.holders_of(["a", "a", "b", "b"]) == [2, 2, 0, 0]
    assert shards.holders_of(["a", "b", "c"]) == [1, 2, 0]
    assert shards.holders_of(["a", "a", "a"]) == [1, 2, 0]
    assert shards.holders_of(["a"]) == [0]
