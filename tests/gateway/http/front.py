"""A real `sluice gateway` in a process of its own, in front of a real engine: one more server for the engine's HTTP tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.engine.serving import Served, answers, free_ports, poll


@contextmanager
def gateway_before(engine: Served, log: Path, *options: str, ready_seconds: float = 120.0) -> Iterator[Served]:
    """The gateway's data port and process, with the key and the admin port of the engine behind it."""
    port, admin_port = free_ports(2)
    backend = f"http://127.0.0.1:{engine.port},http://127.0.0.1:{engine.admin_port}"
    command = [sys.executable, "-m", "sluice", "gateway", "--backend", backend]
    command += ["--port", str(port), "--admin-port", str(admin_port), "--grace-seconds", "0"]
    roots = os.pathsep.join(str(Path(__file__).parents[3] / root) for root in ("operator", "engine", "kernels"))
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, *options], stdout=sink, stderr=sink, env={**os.environ, "PYTHONPATH": roots}
        )
    gateway = replace(engine, process=process, port=port, log=log)
    own = replace(gateway, admin_port=admin_port)
    try:
        poll(lambda: process.poll() is not None or answers(own, "/readyz", 200), ready_seconds, log)
        assert process.poll() is None, log.read_text()[-3000:]
        yield gateway
    finally:
        process.kill()
        process.wait(60)
