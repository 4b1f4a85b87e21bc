"""The operator and the responder as processes, and the recording of a real engine's metrics."""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil

from sluice import contract
from sluice_engine import tiny
from tests.bench.operator_scale.objects import SYSTEM
from tests.bench.processes.server import free_ports, stop, wait_ready

INTERVAL: Final = 30.0
_PASSES: Final = re.compile(rf'^{contract.OPERATOR_RECONCILE}\{{result="ok"\}} (\S+)$', re.MULTILINE)
_OBSERVED: Final = re.compile(rf"^{contract.OPERATOR_RESOURCE_FAILURES}\{{(.*)\}} ", re.MULTILINE)  # once per resource
_REQUESTS: Final = 8  # that the engine serves before its metrics are recorded


async def recorded_metrics(log: Path) -> bytes:
    """Return the metrics of an engine of this repository that has served some requests."""
    model = await asyncio.to_thread(tiny.ensure)
    ports = free_ports(2)
    data, admin = (f"http://127.0.0.1:{port}" for port in ports)
    command = [sys.executable, "-m", "sluice", "serve", str(model), "--served-name", "tiny", "--threads", "1"]
    command += ["--port", str(ports[0]), "--admin-port", str(ports[1]), "--grace-seconds", "0"]
    async with _process(command, log) as process, aiohttp.ClientSession(raise_for_status=True) as session:
        await wait_ready(process, admin + contract.PATH_READYZ, log)
        body = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 16}
        for _ in range(_REQUESTS):
            async with session.post(data + contract.PATH_COMPLETIONS, json=body) as answer:
                await answer.read()
        async with session.get(admin + contract.PATH_METRICS) as answer:
            return await answer.read()


@asynccontextmanager
async def _process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("a") as file:
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file, env=environment)
        try:
            yield process
        finally:
            await stop(process)


@asynccontextmanager
async def local_addresses(network: str) -> AsyncIterator[None]:
    """Let this machine answer for the addresses of the fake pods."""
    await _ip("route", "replace", "local", network, "dev", "lo")
    try:
        yield
    finally:
        await _ip("route", "delete", "local", network, "dev", "lo")


async def _ip(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec("ip", *arguments)
    if await process.wait():
        raise PermissionError(f"`ip {' '.join(arguments)}` failed: the bench must run as root")


class Responder:
    """The running responder and what it has counted."""

    scrapes = 0
    limits = 0

    async def read(self, process: asyncio.subprocess.Process) -> None:
        """Follow its output."""
        assert process.stdout is not None
        async for line in process.stdout:
            self.scrapes, self.limits = map(int, line.split())


@asynccontextmanager
async def responder(metrics: Path) -> AsyncIterator[Responder]:
    """The responder while the context lasts."""
    command = (sys.executable, "-m", "tests.bench.operator_scale.responder", str(metrics))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    found = Responder()
    reading = asyncio.create_task(found.read(process))
    try:
        yield found
    finally:
        await stop(process)
        reading.cancel()


class Operator:
    """A running operator."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._url = f"http://127.0.0.1:{port}{contract.PATH_METRICS}"
        self._seen: Any = psutil.Process(process.pid)  # type: ignore[no-untyped-call]

    async def ended(self) -> None:
        """Wait until it has ended."""
        await self._process.wait()

    async def passes(self) -> int:
        """Passes that ended without an error. Raises ChildProcessError as all methods if the operator has ended."""
        return passes_in(await self._metrics())

    async def progress(self) -> tuple[int, int]:
        """Resources over which a pass has begun, and passes that ended without an error."""
        text = await self._metrics()
        return resources_in(text), passes_in(text)

    async def _metrics(self) -> str:
        """Its metrics; empty while it does not answer."""
        self._check()
        try:
            async with aiohttp.ClientSession() as session, session.get(self._url) as answer:
                return await answer.text()
        except aiohttp.ClientError:
            return ""

    def memory(self) -> float:
        """Resident memory in MB."""
        self._check()
        return float(self._seen.memory_info().rss) / 1e6

    def busy(self) -> float:
        """Processor seconds since its start."""
        self._check()
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    def _check(self) -> None:
        if self._process.returncode is not None:
            raise ChildProcessError(
                f"the operator has ended with {self._process.returncode}; its log says why (on a busy machine it loses "
                "the Lease when the API server does not answer for 10 s)"
            )


def passes_in(metrics: str) -> int:
    """The passes that ended without an error, by an operator's metrics."""
    found = _PASSES.search(metrics)
    return int(float(found[1])) if found else 0


def resources_in(metrics: str) -> int:
    """The resources over which a pass has begun, by an operator's metrics."""
    return len(set(_OBSERVED.findall(metrics)))


@asynccontextmanager
async def operator(kubeconfig: Path, log: Path) -> AsyncIterator[Operator]:
    """The operator of this repository while the context lasts."""
    (port,) = free_ports(1)
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "POD_NAMESPACE": SYSTEM,
        "SLUICE_INTERVAL_SECONDS": f"{INTERVAL:g}",
        "SLUICE_HEALTH_PORT": str(port),
        "SLUICE_HUB_ENDPOINT": "",
        "SLUICE_METRICS_RESOURCES": "100000",  # a series for each, which the bench counts
        "SLUICE_ENGINE_IMAGE": "sluice/engine:bench",
        "SLUICE_NETWORK_PEERS": '{"admin": [{"podSelector": {}}], "data": []}',
    }
    async with _process((sys.executable, "-m", "sluice", "operator"), log, environment) as process:
        yield Operator(process, port)


@asynccontextmanager
async def restarted_operator(kubeconfig: Path, log: Path) -> AsyncIterator[None]:
    """An operator that is started again whenever it ends, as Kubernetes does with a pod, while the context lasts."""

    async def run() -> None:
        while True:
            async with operator(kubeconfig, log) as running:
                await running.ended()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
