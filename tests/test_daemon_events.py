# SPDX-License-Identifier: Apache-2.0
"""Server-sent events of a real daemon."""

import http.client
import json

import pytest
from daemon_cluster import Cluster
from running import LIMIT_S


class Events:
    """One reader of /v1/events."""

    def __init__(self, cluster: Cluster, last_id: str = "", token: str = ""):
        self.connection = http.client.HTTPConnection((cluster.data / "address").read_text().strip(), timeout=LIMIT_S)
        headers = {"Authorization": f"Bearer {token or (cluster.data / 'token').read_text().strip()}"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        self.connection.request("GET", "/v1/events", headers=headers)
        self.answer = self.connection.getresponse()
        self.last_id = last_id

    def next(self) -> tuple[str, dict] | None:
        """Type and data of the next event; None at the end of the stream."""
        kind = ""
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            kind = value if name == "event" else kind
            self.last_id = value if name == "id" else self.last_id
            if name == "data":
                self.answer.readline()
                return kind, json.loads(value)
        return self.next() if line == "" and not self.answer.isclosed() and self.answer.fp.peek(1) else None

    def until(self, kind: str, test=lambda data: True) -> dict:
        while event := self.next():
            if event[0] == kind and test(event[1]):
                return event[1]
        raise AssertionError(f"the stream ended before {kind}")


@pytest.fixture
def cluster(cluster):
    cluster.up()
    return cluster


def test_a_reader_sees_a_jobs_way_and_goes_on_after_a_break(cluster):
    events = Events(cluster)
    assert events.answer.getheader("Content-Type") == "text/event-stream"
    events.until("start")
    job = cluster.submit("--name", "seen", "--", "true")
    queued = events.until("job", lambda data: data["id"] == job)
    assert queued["state"] == "queued"
    resume_at = events.last_id
    events.until("job", lambda data: data["state"] == "finished")

    later = Events(cluster, resume_at)
    states = []
    while not states or states[-1] != "finished":
        states.append(later.until("job")["state"])
    assert states[0] in ("starting", "running") and "queued" not in states

    cluster.kill()
    assert events.next() is None or events.next() is None
    cluster.up()
    Events(cluster, resume_at).until("start")  # ids of another life begin anew


def test_many_readers_leave_room_for_requests_and_a_revoked_one_ends(cluster):
    readers = [Events(cluster) for _ in range(100)]  # more than there are threads that serve requests
    cluster.submit("--", "true")
    for reader in readers:
        reader.until("job", lambda data: data["state"] == "finished")
    token = json.loads(cluster.ok("token", "create", "ann", "--json"))["token"]
    ann = Events(cluster, token=token)
    ann.until("start")
    cluster.ok("token", "revoke", "ann")
    while ann.next():
        pass
    refused = Events(cluster, token=token)
    assert refused.answer.status == 401
