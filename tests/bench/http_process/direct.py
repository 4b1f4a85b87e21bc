"""A client that speaks to a null engine of its own without an HTTP process: what is left is the HTTP process's share."""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from sluice_engine import messages
from sluice_engine.sampling_params import SamplingParams
from tests.bench.http_process.null_engine import ENV_PLACES, ENV_STEP_SECONDS
from tests.engine.frames import next_frame


class DirectClient:
    """The parent of a null engine, over the engine's own protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._first: dict[str, asyncio.Future[None]] = {}
        self._reading = asyncio.create_task(self._read(reader))
        self._count = 0

    async def first_token(self, prompt: tuple[int, ...], max_tokens: int) -> float:
        """Seconds from the submission of a request to its first token."""
        name = f"direct-{self._count}"
        self._count += 1
        first = self._first[name] = asyncio.get_running_loop().create_future()
        begun = time.perf_counter()
        params = SamplingParams(max_tokens=max_tokens)
        self._writer.write(messages.encode_frame(messages.Submit(name, prompt, params, time.monotonic())))
        await first
        return time.perf_counter() - begun

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (body := await next_frame(reader)) is not None:
            message = messages.decode_from_engine(body)
            if isinstance(message, messages.StepReport):
                for delta in message.deltas:
                    first = self._first.pop(delta.request_id, None)
                    if first is not None:
                        first.set_result(None)


@contextlib.asynccontextmanager
async def direct_client(step_seconds: float) -> AsyncIterator[DirectClient]:
    """A client with a null engine that has connected."""
    connected: asyncio.Future[DirectClient] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set_result(DirectClient(reader, writer))

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "engine.sock")
        server = await asyncio.start_unix_server(serve, path=path)
        environment = {**os.environ, ENV_STEP_SECONDS: str(step_seconds), ENV_PLACES: "1000"}
        command = (sys.executable, "-m", "tests.bench.http_process.null_engine", path)
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        try:
            yield await connected
        finally:
            process.terminate()
            await process.wait()
            server.close()
