# SPDX-License-Identifier: Apache-2.0
"""What the other tests rely on when a job of theirs hangs."""

import pytest
from jobs import JobHangsError, run_job


def test_a_job_that_hangs_fails_with_the_last_words_and_the_stack_of_every_rank():
    script = """
    import faulthandler, os, time
    faulthandler.dump_traceback_later(1)
    def wait_for_ever():
        print("rank", os.environ["RANK"], "waits", flush=True)
        time.sleep(1000)
    wait_for_ever()
    """
    with pytest.raises(JobHangsError) as failure:
        run_job(2, script, limit_s=8)
    text = str(failure.value)
    assert "rank 0 waits" in text and "rank 1 waits" in text
    assert text.count("in wait_for_ever") == 2
