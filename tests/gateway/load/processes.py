"""Gateways as processes, as a cluster has them, over engines of the test."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.gateway.engines import FakeEngine


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A gateway that serves. `port` and `admin_port` on 127.0.0.1."""

    process: asyncio.subprocess.Process
    port: int
    admin_port: int

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    async def terminate(self) -> int:
        """Send SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@asynccontextmanager
async def gateway_process(engines: Sequence[FakeEngine], log: Path, *options: str) -> AsyncIterator[GatewayProcess]:
    """`sluice gateway` over started engines; its log is written to `log`."""
    backends = [
        part for engine in engines for part in ("--backend", f"{engine.backend.url},{engine.backend.admin_url}")
    ]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sluice", "gateway", *backends, "--port", "0", "--admin-port", "0", *options,
            stderr=file, env=os.environ | {"SLUICE_LOG_FORMAT": "json"},
        )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            ports = await _ports(process, log)
        yield GatewayProcess(process, *ports)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ports(process: asyncio.subprocess.Process, log: Path) -> tuple[int, int]:
    """The ports in its first line. Raises RuntimeError if it ends without one."""
    while process.returncode is None:
        if ports := _listening(log):
            return ports
        await asyncio.sleep(0.02)
    raise RuntimeError(f"no port is in {log}")


def _listening(log: Path) -> tuple[int, int] | None:
    line, end, _ = log.read_bytes().partition(b"\n")
    if not end:
        return None
    data, admin = re.findall(r":(\d+)", json.loads(line)["message"])
    return int(data), int(admin)
