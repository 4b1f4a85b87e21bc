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
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sluice", "gateway", *backends, "--port", "0", "--admin-port", "0", *options,
        stderr=asyncio.subprocess.PIPE, env=os.environ | {"SLUICE_LOG_FORMAT": "json"},
    )  # fmt: skip
    assert process.stderr is not None
    copying: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(120):
            first = await process.stderr.readline()
        copying = asyncio.create_task(_copy(process.stderr, log))
        yield GatewayProcess(process, *_ports(first))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if copying is not None:
            await copying


async def _copy(lines: asyncio.StreamReader, log: Path) -> None:
    with log.open("wb") as file:
        while part := await lines.read(1 << 16):
            file.write(part)


def _ports(first: bytes) -> tuple[int, int]:
    """The ports in the first line of the log."""
    data, admin = re.findall(r":(\d+)", json.loads(first)["message"])
    return int(data), int(admin)
