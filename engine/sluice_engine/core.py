"""The engine process: `python -m sluice_engine.core SOCKET_PATH`, options as JSON in SLUICE_ENGINE_OPTIONS.

Three threads: one reads messages, one writes reports, the main one steps. The step loop touches neither file nor
socket, so a slow reader never stalls a stream of another. The process ends with its parent: at the end of the socket,
and by the kernel's parent-death signal where there is one.
"""

import contextlib
import ctypes
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from sluice.contract import EXIT_CONFIG, EXIT_FAILED, EXIT_USAGE, REASON_ENGINE_CRASHED
from sluice_engine import ipc
from sluice_engine.options import EngineOptions

if TYPE_CHECKING:
    from sluice_engine.loop import EngineLoop

ENV_OPTIONS = "SLUICE_ENGINE_OPTIONS"
IDLE_SECONDS = 1.0  # the fast loop's period: the longest that an idle engine waits

_log = logging.getLogger(__name__)
_PR_SET_PDEATHSIG = 1


class Channel:
    """The socket, behind two threads and two queues."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._inbox: queue.SimpleQueue[ipc.ToEngine] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[ipc.FromEngine | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def send(self, message: ipc.FromEngine) -> None:
        """Queue a message; never blocks."""
        self._outbox.put(message)

    def received(self, wait: float) -> list[ipc.ToEngine]:
        """All messages that have come, waiting up to `wait` seconds for the first."""
        messages: list[ipc.ToEngine] = []
        with contextlib.suppress(queue.Empty):
            if wait > 0:
                messages.append(self._inbox.get(timeout=wait))
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def close(self) -> None:
        """Send what is queued, then end."""
        self._outbox.put(None)
        self._writer.join(timeout=5.0)

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while (body := _frame(stream.read)) is not None:
                    try:
                        self._inbox.put(ipc.decode_to_engine(body))
                    except msgspec.MsgspecError as error:
                        _log.error("ignored a message that could not be read: %s", error)
        finally:
            os._exit(0)  # the parent is gone, or makes no sense: nobody is left to compute for

    def _write(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                self._socket.sendall(ipc.encode_frame(message))
            except OSError:
                os._exit(0)  # as above


class Messages(Protocol):
    """What the loop needs of a channel."""

    def send(self, message: ipc.FromEngine) -> None:
        """Queue a message; never blocks."""

    def received(self, wait: float) -> list[ipc.ToEngine]:
        """All messages that have come, waiting up to `wait` seconds for the first."""


def serve(channel: Messages, engine: "EngineLoop") -> None:
    """Take messages, step, report, for ever. While nothing is to do, wait."""
    wait = IDLE_SECONDS
    while True:
        for message in channel.received(wait):
            _take(channel, engine, message)
        if (wait := engine.spare) > 0.0:
            continue  # the step under way leaves time for more to arrive before the next one is planned
        report = engine.step()
        if report is not None:
            channel.send(report)
        wait = 0.0 if report is not None and engine.has_work else IDLE_SECONDS


def _take(channel: Messages, engine: "EngineLoop", message: ipc.ToEngine) -> None:
    match message:
        case ipc.Submit() | ipc.Encode():
            refusal = engine.submit(message)
            if refusal is not None:
                channel.send(refusal)
        case ipc.Cancel():
            engine.cancel(message)
        case ipc.LimitsPatch():
            engine.patch(message)
        case ipc.Drain():
            engine.drain()
        case ipc.StateRequest():
            channel.send(ipc.StateReply(message.token, engine.state()))


def _frame(read: Callable[[int], bytes]) -> bytes | None:
    """The next frame's body from a blocking stream, or None at its end."""
    head = read(4)
    if len(head) < 4:
        return None
    length = int.from_bytes(head, "big")
    if length > ipc.MAX_FRAME_BYTES:
        raise ValueError(f"frame of {length} bytes exceeds {ipc.MAX_FRAME_BYTES}")
    body = read(length)
    return body if len(body) == length else None


def _die_with_parent() -> None:
    """SIGKILL when the parent dies (Linux); Ctrl-C is the parent's business: it drains first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _start(channel: Channel, options: EngineOptions) -> "EngineLoop | None":
    """The loaded engine; or None after `Failed` was sent."""
    channel.send(ipc.Loading("load", 0.0, 0.0))
    try:
        from sluice_engine.loop import EngineLoop  # torch and transformers take seconds: say "loading" first
        from sluice_engine.model.errors import StartError
    except ImportError as error:
        channel.send(ipc.Failed(REASON_ENGINE_CRASHED, f"The engine's packages cannot be imported: {error}."))
        return None
    try:
        engine = EngineLoop(options, on_progress=channel.send)
    except StartError as error:
        channel.send(ipc.Failed(error.reason, str(error)))
        return None
    channel.send(engine.ready)
    return engine


def main(arguments: list[str]) -> int:
    """Run until the parent goes; the exit code tells a failed start from a crash."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m sluice_engine.core SOCKET_PATH\n")
        return EXIT_USAGE
    _die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s engine %(levelname)s %(message)s")
    options = msgspec.json.decode(os.environ[ENV_OPTIONS], type=EngineOptions)
    channel = Channel(arguments[0])
    try:
        engine = _start(channel, options)
        if engine is None:
            channel.close()
            return EXIT_CONFIG
        serve(channel, engine)
    except Exception as error:  # noqa: BLE001 - the last word before the process ends
        _log.exception("the engine crashed")
        channel.send(ipc.Failed(REASON_ENGINE_CRASHED, f"The engine crashed: {type(error).__name__}: {error}."))
        channel.close()
    return EXIT_FAILED


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # torch's own threads need no farewell
