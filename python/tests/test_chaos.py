# SPDX-License-Identifier: Apache-2.0
"""Everything that can happen to a run, in one order drawn from a seed: in the end it has trained as if nothing had happened."""

import pytest
from chaos import Chaos
from elastic_jobs import lines_of

SEED = 6
CHANGES = 25


@pytest.mark.timeout(900)
def test_three_epochs_with_25_changes_and_every_fault_lose_and_repeat_nothing(tmp_path):
    with Chaos(tmp_path, SEED) as chaos:
        events = ["grow", "source_dies", "cut", "thaw", "disk", "freeze", "kill"]
        chaos.random.shuffle(events)
        for event in events:
            chaos.happen(event)
            chaos.note_usage()
        while chaos.changes() < CHANGES:
            chaos.happen(chaos.random.choice(["shrink", "kill"]) if len(chaos.members) > 3 else "grow")
            chaos.note_usage()
        print(*chaos.happened, sep="\n")
        chaos.finish()
    assert chaos.changes() >= CHANGES
    assert_no_checkpoint_was_needed(tmp_path)


@pytest.mark.timeout(900)
def test_every_fault_with_sharded_updates_loses_and_repeats_nothing(tmp_path):
    with Chaos(tmp_path, SEED, update="sharded", samples=1000) as chaos:
        for event in chaos.random.sample(["grow", "source_dies", "cut", "thaw", "disk", "freeze", "kill", "shrink"], 8):
            chaos.happen(event)
            chaos.note_usage()
        print(*chaos.happened, sep="\n")
        chaos.finish()
    assert_no_checkpoint_was_needed(tmp_path)


def assert_no_checkpoint_was_needed(folder):
    """Some worker always lived, and what was lost with one was another's, too."""
    ledger = [line for lines in lines_of(folder, "ledger").values() for line in lines if line["how"] == "done"]
    assert {line["life"] for line in ledger} == {0.0}
