# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine: network namespaces joined by shaped links.

    with Fabric(hosts=2, link="1gbit") as fabric:
        fabric.run(0, ["hostname", "-I"])

Each host is a network namespace with one interface `eth0` (cubic, MTU 1500). Links of a plain rate are veth pairs on a bridge, shaped
by a token bucket at the sender; links with a delay go through `tun_switch`, because the kernel may lack netem. Names carry the owner's
process id and start time, so concurrent runs do not collide, and the namespaces of runs that died are removed by the next one.
Needs root, iproute2 and util-linux (nsenter).

    python3 -m benchmarks.fabric --hosts 2 --link 500mbit -- maypole run ... runs one command with FABRIC_HOSTS and FABRIC_LAUNCHER set.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETNS = Path("/run/netns")
PREFIX = "mpfab"


@dataclass(frozen=True)
class Link:
    """What joins a host to the switch, each direction. rate in bits per second, None = unshaped; delay one way, seconds."""

    rate: int | None
    delay_s: float = 0.0


LINKS = {
    "unshaped": Link(None),
    "100mbit": Link(100_000_000),
    "200mbit": Link(200_000_000),
    "250mbit": Link(250_000_000),
    "500mbit": Link(500_000_000),
    "1gbit": Link(1_000_000_000),
    "1gbit-5ms": Link(1_000_000_000, 0.005),
}


def parse_link(name: str) -> Link:
    """`unshaped`, `NNNmbit`, `Ngbit`, each but the first optionally followed by `-Nms` of one-way delay."""
    if name in LINKS:
        return LINKS[name]
    match = re.fullmatch(r"(\d+)(mbit|gbit)(?:-(\d+(?:\.\d+)?)ms)?", name)
    if not match:
        raise ValueError(f"link {name!r} is none of unshaped, NNNmbit, Ngbit, NNNmbit-Nms: for instance 250mbit or 1gbit-5ms")
    rate = int(match[1]) * (10**6 if match[2] == "mbit" else 10**9)
    return Link(rate, float(match[3] or 0) / 1000)


def _start_time(pid: int) -> str | None:
    """The kernel's start time of a process, or None when it is gone: tells a process from a later one with its id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}; network namespaces need root and iproute2")


def _remove(name: str) -> None:
    """Ends what still runs in a namespace, then removes it."""
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)


def remove_leftovers() -> int:
    """Removes the namespaces of runs that no longer exist; returns how many."""
    count = 0
    for path in NETNS.glob(f"{PREFIX}-*"):
        match = re.fullmatch(rf"{PREFIX}-(\d+)-(\d+)-\d+-\w+", path.name)
        if match and _start_time(int(match[1])) != match[2]:
            _remove(path.name)
            count += 1
    return count


def build_program(name: str) -> str:
    """The path of a program of build/benchmarks, or an error that says how to build it."""
    for folder in filter(None, [os.environ.get("MAYPOLE_BUILD"), ROOT / "build"]):
        path = Path(folder) / "benchmarks" / name
        if path.exists():
            return str(path)
    raise RuntimeError(f"{name} is not built: run `make build` (or set MAYPOLE_BUILD to the build folder)")


class Fabric:
    """Hosts 0 .. hosts-1; host i has the address 10.77.0.(i+1)."""

    _count = 0

    def __init__(self, hosts: int = 2, link: str = "1gbit"):
        if os.geteuid() != 0:
            raise PermissionError("network namespaces need root: run the benchmark as root")
        pid = os.getpid()
        Fabric._count += 1
        base = f"{PREFIX}-{pid}-{_start_time(pid)}-{Fabric._count}"
        self.link_name = link
        self.link = parse_link(link)
        self.hosts = [f"{base}-h{i + 1}" for i in range(hosts)]
        self.addresses = [f"10.77.0.{i + 1}" for i in range(hosts)]
        self._switch = f"{base}-sw"
        self._switch_process: subprocess.Popen | None = None
        self._processes: list[subprocess.Popen] = []
        self._old_handlers: dict[int, object] = {}

    # --- life ---

    def __enter__(self) -> Fabric:
        remove_leftovers()
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._old_handlers[number] = signal.signal(number, lambda n, _: sys.exit(128 + n))
        try:
            self._build()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._tear_down()

    def _build(self) -> None:
        _allow_cubic()
        for host in self.hosts:
            _ip("netns", "add", host)
            _ip("-n", host, "link", "set", "lo", "up")
        if self.link.delay_s:
            self._start_tun_switch()
        else:
            self._start_bridge()
        for host, address in zip(self.hosts, self.addresses):
            _ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            subprocess.run(
                ["nsenter", f"--net=/run/netns/{host}", "sysctl", "-qw", "net.ipv4.tcp_congestion_control=cubic"],
                check=True, capture_output=True,
            )

    def _start_bridge(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "set", "lo", "up")
        _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "br0", "up")
        for i, host in enumerate(self.hosts):
            _ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", f"p{i}", "netns", self._switch)
            _ip("-n", self._switch, "link", "set", f"p{i}", "master", "br0", "up")
        self._shape()

    def _shape(self) -> None:
        if self.link.rate is None:
            return
        for host in self.hosts:
            # A burst of at least 128 kB lets the bucket pass 64 KiB packets whole; smaller ones are cut up in software.
            subprocess.run(
                ["tc", "-n", host, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{self.link.rate}bit", "burst", "128kb",
                 "latency", "5ms"],
                check=True, capture_output=True,
            )

    def _start_tun_switch(self) -> None:
        words = [build_program("tun_switch"), "--delay-us", str(round(self.link.delay_s * 1e6)), "--queue-bytes", str(4 << 20)]
        if self.link.rate:
            words += ["--rate-bits", str(self.link.rate)]
        for host, address in zip(self.hosts, self.addresses):
            words += ["--host", f"/run/netns/{host}={address}"]
        self._switch_process = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        if self._switch_process.stdout.readline().strip() != "ready":
            raise RuntimeError("tun_switch did not start: /dev/net/tun must exist and the benchmark must run as root")

    def _tear_down(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if self._switch_process:
            self._switch_process.stdin.close()  # its end of input is its order to leave
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._switch_process.wait(timeout=5)
            if self._switch_process.poll() is None:
                self._switch_process.kill()
                self._switch_process.wait()
            self._switch_process.stdout.close()
        for name in [*self.hosts, self._switch]:
            if (NETNS / name).exists():
                _remove(name)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    # --- use ---

    def set_link(self, name: str) -> None:
        """Changes the rate of a running fabric; both the old and the new link must be without delay."""
        link = parse_link(name)
        if link.delay_s or self.link.delay_s or link.rate is None:
            raise ValueError(f"link {name!r} cannot be set on a running fabric: make a new one")
        self.link, self.link_name = link, name
        self._shape()

    @property
    def hosts_option(self) -> str:
        """For `maypole run --hosts`: one worker on every host."""
        return ",".join(f"{host}={address}:1" for host, address in zip(self.hosts, self.addresses))

    @property
    def launcher(self) -> str:
        return "nsenter --net=/run/netns/{host} {command}"

    def enter(self, host: int, argv: list[str]) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.hosts[host]}", *argv]

    def start(self, host: int, argv: list[str], **options) -> subprocess.Popen:
        """Starts a program on a host, in a process group of its own; it ends with the fabric at the latest."""
        process = subprocess.Popen(self.enter(host, argv), start_new_session=True, **options)
        self._processes.append(process)
        return process

    def run(self, host: int, argv: list[str], **options) -> subprocess.CompletedProcess:
        return subprocess.run(self.enter(host, argv), check=True, text=True, **options)

    def goodput(self, seconds: float = 2.0) -> float:
        """Payload bytes per second of one TCP stream from host 0 to host 1, measured now."""
        receiver, sender = self._stream(0, 1, seconds)
        sender.wait()
        line = receiver.stdout.readline()
        receiver.wait()
        return json.loads(line)["bytes_per_second"]

    @contextlib.contextmanager
    def background_stream(self):
        """A saturating TCP stream in both directions between hosts 0 and 1 for as long as the context lasts."""
        processes = [*self._stream(0, 1, 3600), *self._stream(1, 0, 3600)]
        try:
            yield
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def _stream(self, source: int, target: int, seconds: float) -> tuple[subprocess.Popen, subprocess.Popen]:
        program = [sys.executable, str(ROOT / "benchmarks" / "stream.py")]
        receiver = self.start(target, [*program, "receive", self.addresses[target]], stdout=subprocess.PIPE, text=True)
        port = receiver.stdout.readline().strip()
        return receiver, self.start(source, [*program, "send", self.addresses[target], port, str(seconds)])


def _allow_cubic() -> None:
    """New namespaces may choose cubic only when the first one allows it."""
    path = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    allowed = path.read_text().split()
    if "cubic" not in allowed:
        path.write_text(" ".join([*allowed, "cubic"]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.fabric", description="Runs a command beside emulated hosts.")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--goodput", action="store_true", help="measure the link and print it")
    parser.add_argument("command", nargs="*")
    arguments = parser.parse_args()
    if shutil.which("nsenter") is None:
        parser.error("nsenter is missing: install util-linux")
    began = time.monotonic()
    with Fabric(arguments.hosts, arguments.link) as fabric:
        print(f"{arguments.hosts} hosts on {arguments.link} in {time.monotonic() - began:.2f} s", file=sys.stderr)
        if arguments.goodput:
            print(f"goodput {fabric.goodput() * 8 / 1e6:.1f} Mbit/s", file=sys.stderr)
        if arguments.command:
            environment = {**os.environ, "FABRIC_HOSTS": fabric.hosts_option, "FABRIC_LAUNCHER": fabric.launcher}
            return subprocess.run(arguments.command, env=environment).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
