# SPDX-License-Identifier: Apache-2.0
"""One TCP stream: `receive ADDRESS` prints its port, later a JSON line with the rate; `send ADDRESS PORT SECONDS` sends.

The receiver measures from its first byte to its last, without the first fifth of a second (slow start and the shaper's burst).
"""

import json
import socket
import sys
import time

CHUNK = 1 << 18
SKIP_S = 0.2


def receive(address: str) -> None:
    listener = socket.create_server((address, 0))
    print(listener.getsockname()[1], flush=True)
    listener.settimeout(30)
    connection, _ = listener.accept()
    connection.settimeout(30)
    buffer = bytearray(CHUNK)
    first = begin = end = None
    total = 0
    while (count := connection.recv_into(buffer)) > 0:
        now = time.perf_counter()
        first = first or now
        if begin is None:
            if now - first >= SKIP_S:
                begin = end = now
        else:
            total += count
            end = now
    if not total:
        sys.exit("the stream was too short to measure: send for at least half a second")
    print(json.dumps({"bytes_per_second": total / (end - begin)}), flush=True)


def send(address: str, port: str, seconds: str) -> None:
    connection = socket.create_connection((address, int(port)), timeout=30)
    block = bytes(CHUNK)
    end = time.perf_counter() + float(seconds)
    while time.perf_counter() < end:
        connection.sendall(block)


if __name__ == "__main__":
    {"receive": receive, "send": send}[sys.argv[1]](*sys.argv[2:])
