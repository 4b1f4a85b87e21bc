"""Client of the engine process: spawns it, exchanges messages over a Unix socket and reports its end.

Each HTTP request has one `Stream`, which buffers the engine's deltas until the handler takes them. The deltas of one
step are delivered together, so a handler wakes at most once per step.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, ParamSpec, Protocol

import msgspec

from sluice.contract import REASON_ENGINE_CRASHED
from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.server.engine.connection import EngineConnection
from sluice_engine.server.errors import ClientTooSlow

MAX_PENDING_DELTAS: Final = 2048  # per sample of a stream; a reader that is this far behind is aborted
KILL_SECONDS: Final = 5.0  # seconds the engine process gets to exit after a signal
ENV_OPTIONS: Final = "SLUICE_ENGINE_OPTIONS"
ENGINE_MODULE: Final = "sluice_engine.core.process"

log = logging.getLogger("sluice.engine")
P = ParamSpec("P")


class EngineFailed(Exception):
    """The engine failed this request or has exited. The cause is in the log."""


class Listener(Protocol):
    """Receives the engine's messages before any handler does. An exception in a method does not affect the streams."""

    def on_loading(self, message: messages.Loading) -> None:
        """The load progressed."""

    def on_ready(self, message: messages.Ready) -> None:
        """The engine is ready."""

    def on_step(self, report: messages.StepReport, now: float) -> None:
        """A step finished. `now` is in monotonic seconds. The streams have its deltas; no handler has run since."""

    def on_report(self, report: messages.StepReport) -> None:
        """The same step again, once the handlers have taken its deltas: for what may be later than a token."""

    def on_rejected(self, message: messages.Rejected) -> None:
        """The engine rejected a request."""

    def on_fault(self, error: Exception) -> None:
        """One of the methods above raised this exception."""


class Stream:
    """Buffer of the engine's deltas for one request until its handler takes them."""

    def __init__(self, samples: int = 1) -> None:
        self._max_pending = MAX_PENDING_DELTAS * samples
        self._pending: list[messages.Delta] = []
        self._waiter: asyncio.Future[None] | None = None
        self._writing: asyncio.Timeout | None = None  # timeout of the current write to the client
        self.error: Exception | None = None
        self.rejected: messages.Rejected | None = None

    def push(self, delta: messages.Delta) -> bool:
        """Adds a delta. Returns False if the reader is MAX_PENDING_DELTAS per sample behind."""
        if len(self._pending) >= self._max_pending:
            self.fail(ClientTooSlow())
            return False
        self._pending.append(delta)
        self._wake()
        return True

    def reject(self, message: messages.Rejected) -> None:
        """Records that the engine rejected the request, at once or after a wait in the queue."""
        self.rejected = message
        self._wake()

    def fail(self, error: Exception) -> None:
        """Ends the request with this error and discards pending deltas. A blocked write to the client is interrupted."""
        if self.error is None:
            self.error = error
            self._interrupt()
        self._wake()

    @contextlib.contextmanager
    def interrupts(self, writing: asyncio.Timeout) -> Iterator[None]:
        """Context manager around a write to the client: if the request fails, the timeout `writing` expires at once."""
        self._writing = writing
        try:
            if self.error is not None:
                self._interrupt()
            yield
        finally:
            self._writing = None

    def _interrupt(self) -> None:
        if self._writing is not None and not self._writing.expired():
            self._writing.reschedule(asyncio.get_running_loop().time())

    async def take(self) -> list[messages.Delta]:
        """Waits for and returns all deltas since the last call. The list is empty only if the request was rejected.

        Raises EngineFailed, ClientTooSlow, or another error that was passed to `fail`.
        """
        while not self._pending and self.rejected is None and self.error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.error is not None:
            raise self.error
        taken, self._pending = self._pending, []
        return taken

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EngineClient:
    """Owns the engine process, its socket and the streams of the requests in flight."""

    def __init__(self, options: EngineOptions, listener: Listener, module: str = ENGINE_MODULE) -> None:
        """`module` is the program of the engine process."""
        self._options = options
        self._module = module
        self._listener = listener
        self._streams: dict[str, Stream] = {}
        self._states: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._report_waiters: list[asyncio.Future[None]] = []
        self._next_token = 0
        self._connection: EngineConnection | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._ended = asyncio.Event()
        self.ready: messages.Ready | None = None
        self.failed: messages.Failed | None = None
        self.last_report: messages.StepReport | None = None
        self.last_progress = time.monotonic()
        self.on_kv_events: Callable[[messages.KvEvents], None] = lambda _: None  # events of the KV cache

    @property
    def in_flight(self) -> int:
        """Samples and texts that were submitted to the engine and have not finished."""
        return len(self._streams)

    @property
    def alive(self) -> bool:
        """Whether the engine process runs and its socket is open."""
        return self._process is not None and self._process.returncode is None and not self._ended.is_set()

    @property
    def pid(self) -> int | None:
        """The engine's process id; None before it is spawned."""
        return None if self._process is None else self._process.pid

    async def run(self, model: Path) -> int:
        """Spawns the engine process for the model's folder and serves its socket until it exits. Returns its exit
        status, negative for a signal.
        """
        options = msgspec.structs.replace(self._options, model=str(model))
        folder = Path(tempfile.mkdtemp(prefix="sluice-"))  # mode 0700
        path = folder / "engine.sock"
        server = await asyncio.get_running_loop().create_unix_server(self._protocol, path=str(path))
        path.chmod(0o600)
        try:
            # A session of its own: Ctrl-C in a terminal signals only this process, which drains first.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                str(path),
                env={**os.environ, ENV_OPTIONS: msgspec.json.encode(options).decode()},
                start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL,
            )
            status = await self._process.wait()
            # The last message (the reason of a failure) may still be in the socket.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 1.0 if self._connection is not None else 0.0)
            return status
        finally:
            self._end()
            await self.stop()
            server.close()
            shutil.rmtree(folder, ignore_errors=True)

    async def stop(self) -> None:
        """Ends the engine process: closes the connection, then sends SIGTERM, then SIGKILL, with KILL_SECONDS between."""
        if self._connection is not None:
            self._connection.close()
        if self._process is None or self._process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), KILL_SECONDS)
                return

    def kill(self) -> None:
        """Sends SIGKILL to the engine process."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def submit(self, *requests: messages.Submit | messages.Encode, stream: Stream | None = None) -> Stream:
        """Submits requests to the engine. All their deltas arrive in one stream, which may be an existing one. The caller
        waits for `drained` then.

        Raises EngineFailed.
        """
        if self._connection is None or not self.alive:
            raise EngineFailed
        if not self._streams:
            self.last_progress = time.monotonic()
        names = [name for message in requests for name in message.names]
        stream = Stream(len(names)) if stream is None else stream
        self._streams.update(dict.fromkeys(names, stream))
        for message in requests:
            self.send(message)
        return stream

    async def drained(self) -> None:
        """Waits while the engine does not read what was submitted. Raises EngineFailed."""
        if self._connection is None:
            raise EngineFailed
        try:
            await self._connection.drain()
        except ConnectionError as error:  # error of the engine's socket: a handler would attribute it to its client
            raise EngineFailed from error

    def cancel(self, request_id: str, reason: str) -> None:
        """Cancels a request in the engine. `reason` is "abort" or "stop". Idempotent; unknown ids are ignored."""
        if self._streams.pop(request_id, None) is not None:
            self.send(messages.Cancel(request_id, "stop" if reason == "stop" else "abort"))

    def send(self, message: messages.ToEngine) -> None:
        """Sends a message. The message is dropped if the connection is closed."""
        if self._connection is not None and not self._connection.closing:
            self._connection.write(messages.encode_frame(message))

    async def state(self) -> dict[str, object]:
        """Returns the scheduler's snapshot. Raises EngineFailed, TimeoutError (5 s)."""
        if not self.alive or self.ready is None:
            raise EngineFailed
        self._next_token += 1
        token = self._next_token
        future = self._states[token] = asyncio.get_running_loop().create_future()
        try:
            self.send(messages.StateRequest(token))
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
        """Ends all requests in flight with this error."""
        for request_id, stream in list(self._streams.items()):
            stream.fail(error)
            self.cancel(request_id, "abort")

    def _protocol(self) -> EngineConnection:
        return EngineConnection(self._accepts, self._dispatch, self._on_end)

    def _accepts(self, connection: EngineConnection) -> bool:
        if self._connection is not None:  # only one engine connects
            return False
        self._connection = connection
        return True

    def _on_end(self, error: Exception | None) -> None:
        if error is not None:
            log.error("reading from the engine process failed", exc_info=error)
            if self.failed is None:
                cause = f"A message of the engine process could not be decoded: {type(error).__name__}: {error}."
                self.failed = messages.Failed(REASON_ENGINE_CRASHED, cause)
        self._end()
        self.kill_soon()

    def kill_soon(self) -> None:
        """Kills the process after KILL_SECONDS: it closed its connection and cannot serve requests."""
        asyncio.get_running_loop().call_later(KILL_SECONDS, self.kill)

    def _end(self) -> None:
        self._ended.set()
        self.fail_all(EngineFailed())
        for state in self._states.values():
            if not state.done():
                state.set_exception(EngineFailed())
        self._wake_report_waiters()

    def _dispatch(self, message: messages.FromEngine) -> None:
        self.last_progress = now = time.monotonic()
        if isinstance(message, messages.StepReport):
            self._on_step(message, now)
        elif isinstance(message, messages.Rejected):
            self._notify(self._listener.on_rejected, message)
            stream = self._streams.pop(message.request_id, None)
            if stream is not None:
                stream.reject(message)
        elif isinstance(message, messages.KvEvents):
            self._notify(self.on_kv_events, message)
        elif isinstance(message, messages.StateReply):
            future = self._states.get(message.token)
            if future is not None and not future.done():
                future.set_result(message.state)
        elif isinstance(message, messages.Loading):
            self._notify(self._listener.on_loading, message)
        elif isinstance(message, messages.Ready):
            self.ready = message
            self._notify(self._listener.on_ready, message)
        else:
            self.failed = message

    def _notify(self, callback: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - streams are not affected; on_fault logs and counts it
            self._listener.on_fault(error)

    def _on_step(self, report: messages.StepReport, now: float) -> None:
        self.last_report = report
        streams = self._streams
        for delta in report.deltas:
            stream = streams.get(delta.request_id)
            if stream is None:
                continue
            if not stream.push(delta):
                self.cancel(delta.request_id, "abort")
            elif delta.finish is not None:
                del streams[delta.request_id]
        self._notify(self._listener.on_step, report, now)
        # The handlers that were woken above run first: gauges need not delay a token.
        asyncio.get_running_loop().call_soon(self._notify, self._listener.on_report, report)
        self._wake_report_waiters()

    def _wake_report_waiters(self) -> None:
        waiters, self._report_waiters = self._report_waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)
