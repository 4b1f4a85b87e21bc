"""A `sluice serve` whose engine is the null engine, in a process of its own, and what that process has used.

`python -m tests.bench.http_process.server JSON` is the server: the options of `sluice serve` by name.
"""

import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sluice import contract, logs
from sluice_engine.server import serve
from tests.bench.http_process.null_engine import ENV_PLACES, ENV_STEP_SECONDS

ENGINE: Final = "tests.bench.http_process.null_engine"
START_SECONDS: Final = 60.0
TICKS: Final = os.sysconf("SC_CLK_TCK")


class ServerFailed(Exception):
    """The server did not start; the message names its log."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running server: its ports and its HTTP process."""

    port: int
    admin_port: int
    pid: int

    @property
    def processor_seconds(self) -> float:
        """Processor time of the HTTP process so far, all threads, in user and kernel mode."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the HTTP process."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def served(
    model: Path, log: Path, *, step_seconds: float, places: int = 256, options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Served]:
    """A ready server. Raises ServerFailed if it does not become ready."""
    port, admin_port = _free_ports(2)
    raw = {"model": str(model), "served-name": "tiny", "port": str(port), "admin-port": str(admin_port)}
    raw |= {"grace-seconds": "0", "drain-seconds": "0"} | dict(options)
    environment = {**os.environ, ENV_STEP_SECONDS: str(step_seconds), ENV_PLACES: str(places)}
    command = [sys.executable, "-m", "tests.bench.http_process.server", json.dumps(raw)]
    with log.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        _wait_ready(process, admin_port, log)
        yield Served(port, admin_port, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def _wait_ready(process: "subprocess.Popen[bytes]", admin_port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", admin_port, timeout=5)
        try:
            connection.request("GET", contract.PATH_READYZ)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass  # not listening yet
        finally:
            connection.close()
        time.sleep(0.1)
    raise ServerFailed(f"the server was not ready within {START_SECONDS:.0f} s; its log is {log}")


def main(options: str) -> int:
    """Serve with the null engine; returns the exit code."""
    logs.configure()
    return serve(json.loads(options), logging.getLogger("sluice.bench").error, ENGINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
