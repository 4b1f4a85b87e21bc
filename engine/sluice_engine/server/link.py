"""The engine process as the HTTP process sees it: spawned, talked to over a Unix socket, mourned when it dies.

One `Stream` per HTTP request holds what the engine sent for it until its handler takes it. What comes in one step is
handed out at once; a handler wakes at most once a step.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Protocol

import msgspec

from sluice_engine import ipc
from sluice_engine.options import EngineOptions
from sluice_engine.server.errors import ClientTooSlow

MAX_PENDING_DELTAS: Final = 2048  # per answer of a stream: a reader this far behind is given up
KILL_SECONDS: Final = 5.0  # how long the engine process may take to end by itself
ENV_OPTIONS: Final = "SLUICE_ENGINE_OPTIONS"

log = logging.getLogger("sluice.engine")


class EngineGone(Exception):
    """The engine failed this request or is gone; what happened is in the log."""


class Listener(Protocol):
    """Who wants to know what the engine says, before the streams do."""

    def on_loading(self, message: ipc.Loading) -> None:
        """The load went on."""

    def on_ready(self, message: ipc.Ready) -> None:
        """The engine serves."""

    def on_step(self, report: ipc.StepReport, now: float) -> None:
        """A step ended."""

    def on_rejected(self, message: ipc.Rejected) -> None:
        """A request was refused."""


class Stream:
    """What the engine sent for one request and its handler has not taken yet."""

    def __init__(self, answers: int = 1) -> None:
        self._most = MAX_PENDING_DELTAS * answers
        self._pending: list[ipc.Delta] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self.rejected: ipc.Rejected | None = None

    def push(self, delta: ipc.Delta) -> bool:
        """Adds a delta; False when the reader is too far behind."""
        if len(self._pending) >= self._most:
            self.fail(ClientTooSlow())
            return False
        self._pending.append(delta)
        self._wake()
        return True

    def reject(self, message: ipc.Rejected) -> None:
        """The engine refused the request; it may have waited."""
        self.rejected = message
        self._wake()

    def fail(self, error: Exception) -> None:
        """The request ends with this error, whatever is pending."""
        if self._error is None:
            self._error = error
        self._wake()

    async def take(self) -> list[ipc.Delta]:
        """Everything that came since the last call, at least one delta, or [] when the request was rejected.

        Raises EngineGone or ClientTooSlow.
        """
        while not self._pending and self.rejected is None and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._error is not None:
            raise self._error
        taken, self._pending = self._pending, []
        return taken

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EngineLink:
    """Owns the engine process, its socket and the streams of the requests in flight."""

    def __init__(self, options: EngineOptions, listener: Listener) -> None:
        self._options = options
        self._listener = listener
        self._streams: dict[str, Stream] = {}
        self._states: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._report_waiters: list[asyncio.Future[None]] = []
        self._next_token = 0
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._ended = asyncio.Event()
        self.ready: ipc.Ready | None = None
        self.failed: ipc.Failed | None = None
        self.last_report: ipc.StepReport | None = None
        self.last_progress = time.monotonic()

    @property
    def in_flight(self) -> int:
        """Requests that the engine has and that have not ended."""
        return len(self._streams)

    @property
    def alive(self) -> bool:
        """Whether the engine process runs and listens."""
        return self._process is not None and self._process.returncode is None and not self._ended.is_set()

    @property
    def pid(self) -> int | None:
        """The engine process, once there is one."""
        return None if self._process is None else self._process.pid

    async def run(self) -> int:
        """Spawns the engine process and serves its socket until it ends. Its exit status, negative for a signal."""
        folder = Path(tempfile.mkdtemp(prefix="sluice-"))  # mode 0700
        path = folder / "engine.sock"
        server = await asyncio.start_unix_server(self._serve, path=str(path))
        path.chmod(0o600)
        try:
            # A session of its own: Ctrl-C in a terminal reaches this process alone, which drains first.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sluice_engine.core",
                str(path),
                env={**os.environ, ENV_OPTIONS: msgspec.json.encode(self._options).decode()},
                start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL,
            )
            status = await self._process.wait()
            # What it said last (why it failed) may still be in the socket.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 1.0 if self._writer is not None else 0.0)
            return status
        finally:
            self._end()
            await self.stop()
            server.close()
            shutil.rmtree(folder, ignore_errors=True)

    async def stop(self) -> None:
        """Ends the engine process: hangs up, then asks, then kills."""
        if self._writer is not None:
            self._writer.close()
        if self._process is None or self._process.returncode is not None:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(sign)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), KILL_SECONDS)
                return

    def kill(self) -> None:
        """Ends the engine process at once."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def submit(self, *messages: ipc.Submit | ipc.Encode, stream: Stream | None = None) -> Stream:
        """Hands requests to the engine; all their answers come in one stream, which may be one that is there already.
        Raises EngineGone."""
        if self._writer is None or not self.alive:
            raise EngineGone
        if not self._streams:
            self.last_progress = time.monotonic()
        names = [name for message in messages for name in message.names]
        stream = Stream(len(names)) if stream is None else stream
        self._streams.update(dict.fromkeys(names, stream))
        for message in messages:
            self.send(message)
        await self._writer.drain()
        return stream

    def cancel(self, request_id: str, reason: str) -> None:
        """Ends a request in the engine, "abort" or "stop". Idempotent; unknown ids are ignored."""
        if self._streams.pop(request_id, None) is not None:
            self.send(ipc.Cancel(request_id, "stop" if reason == "stop" else "abort"))

    def send(self, message: ipc.ToEngine) -> None:
        """Sends a message; dropped when the engine is gone."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(ipc.encode_frame(message))

    async def state(self) -> dict[str, object]:
        """The scheduler's snapshot. Raises EngineGone, TimeoutError."""
        if not self.alive or self.ready is None:
            raise EngineGone
        self._next_token += 1
        token = self._next_token
        future = self._states[token] = asyncio.get_running_loop().create_future()
        try:
            self.send(ipc.StateRequest(token))
            return await asyncio.wait_for(future, 5.0)
        finally:
            self._states.pop(token, None)

    async def next_report(self, timeout: float) -> None:
        """Waits for the engine's next report, at most `timeout` seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._report_waiters.append(future)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(future, timeout)

    def fail_all(self, error: Exception) -> None:
        """Every request in flight ends with this error."""
        for request_id, stream in list(self._streams.items()):
            stream.fail(error)
            self.cancel(request_id, "abort")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:  # one engine, one connection
            writer.close()
            return
        self._writer = writer
        try:
            while (body := await ipc.read_frame(reader)) is not None:
                self._dispatch(ipc.decode_from_engine(body))
        except (msgspec.DecodeError, ValueError, OSError) as error:
            log.error("the engine process sent what cannot be read: %s", error)
        finally:
            self._end()
            self.kill_soon()

    def kill_soon(self) -> None:
        """A process that hung up serves nobody: it gets a moment to end, then is killed."""
        asyncio.get_running_loop().call_later(KILL_SECONDS, self.kill)

    def _end(self) -> None:
        self._ended.set()
        self.fail_all(EngineGone())
        for state in self._states.values():
            if not state.done():
                state.set_exception(EngineGone())
        self._wake_report_waiters()

    def _dispatch(self, message: ipc.FromEngine) -> None:
        self.last_progress = now = time.monotonic()
        if isinstance(message, ipc.StepReport):
            self._on_step(message, now)
        elif isinstance(message, ipc.Rejected):
            self._listener.on_rejected(message)
            stream = self._streams.pop(message.request_id, None)
            if stream is not None:
                stream.reject(message)
        elif isinstance(message, ipc.StateReply):
            future = self._states.get(message.token)
            if future is not None and not future.done():
                future.set_result(message.state)
        elif isinstance(message, ipc.Loading):
            self._listener.on_loading(message)
        elif isinstance(message, ipc.Ready):
            self.ready = message
            self._listener.on_ready(message)
        else:
            self.failed = message

    def _on_step(self, report: ipc.StepReport, now: float) -> None:
        self.last_report = report
        self._listener.on_step(report, now)
        streams = self._streams
        for delta in report.deltas:
            stream = streams.get(delta.request_id)
            if stream is None:
                continue
            if not stream.push(delta):
                self.cancel(delta.request_id, "abort")
            elif delta.finish is not None:
                del streams[delta.request_id]
        self._wake_report_waiters()

    def _wake_report_waiters(self) -> None:
        waiters, self._report_waiters = self._report_waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)
