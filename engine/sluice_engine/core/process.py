"""The engine process: `python -m sluice_engine.core.process SOCKET_PATH`, options as JSON in SLUICE_ENGINE_OPTIONS.

It has three threads: one reads messages, one writes reports, the main thread runs steps. The step loop does no file or
socket I/O, so a slow reader never stalls another stream. The process ends with its parent, with status 0: on the end of
the socket, and by the kernel's parent-death signal where available. If any thread fails, the process ends with status
1, after logging the traceback and sending the reason to the parent.
"""

import contextlib
import logging
import os
import queue
import socket
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from sluice import logs
from sluice.contract import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_USAGE, REASON_ENGINE_CRASHED
from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.core.parent_process import die_with_parent

if TYPE_CHECKING:
    from sluice_engine.core.engine import EngineLoop
    from sluice_engine.core.ranks.wire import RankFault

ENV_OPTIONS = "SLUICE_ENGINE_OPTIONS"
IDLE_SECONDS = 1.0  # the fast loop's period; the longest wait of an idle engine
CLOSE_SECONDS = 5.0  # timeout for writing the last messages

_log = logging.getLogger(__name__)


class Channel:
    """The socket, served by a reader and a writer thread with one queue each. A failing thread ends the process."""

    def __init__(self, path: str) -> None:
        self._exits_with_parent = True  # true: the process exits when the socket closes
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self.folder = Path(path).parent  # private to this engine; the parent process removes it
        self._inbox: queue.SimpleQueue[messages.ToEngine | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[messages.FromEngine | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def send(self, message: messages.FromEngine) -> None:
        """Queue a message; never blocks."""
        self._outbox.put(message)

    def received(self, wait: float) -> list[messages.ToEngine]:
        """All received messages; waits up to `wait` seconds for the first, or for `wake`."""
        taken: list[messages.ToEngine | None] = []
        with contextlib.suppress(queue.Empty):
            if wait > 0:
                taken.append(self._inbox.get(timeout=wait))
            while True:
                taken.append(self._inbox.get_nowait())
        return [message for message in taken if message is not None]

    def wake(self) -> None:
        """End the wait of `received`; from any thread."""
        self._inbox.put(None)

    def keep_alive(self) -> None:
        """Keep the process alive after the socket closes: the main thread ends it with the right exit status."""
        self._exits_with_parent = False

    def close(self) -> None:
        """Send the queued messages, then stop the writer (at most CLOSE_SECONDS)."""
        self.keep_alive()
        self._outbox.put(None)
        self._writer.join(timeout=CLOSE_SECONDS)

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while (body := messages.read_frame(stream.read)) is not None:
                    try:
                        self._inbox.put(messages.decode_to_engine(body))
                    except msgspec.MsgspecError as error:
                        _log.error("ignored a message that could not be decoded: %s", error)
        except ConnectionError:
            pass  # same as the end of the stream
        except BaseException as error:  # noqa: BLE001 - without this thread no message is read
            self.keep_alive()
            _log.critical("the thread that reads messages failed", exc_info=error)
            self.send(crash_message(error))
            self.close()
            os._exit(EXIT_FAILED)
        self._parent_gone()

    def _write(self) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                self._socket.sendall(messages.encode_frame(message))
        except ConnectionError:
            self._parent_gone()
        except BaseException as error:  # noqa: BLE001 - without this thread every stream would hang
            self.keep_alive()
            _log.critical("the thread that writes reports failed", exc_info=error)
            with contextlib.suppress(OSError):
                self._socket.sendall(messages.encode_frame(crash_message(error)))
            os._exit(EXIT_FAILED)

    def _parent_gone(self) -> None:
        if self._exits_with_parent:
            os._exit(EXIT_OK)  # no process is left to receive results


def crash_message(error: BaseException) -> messages.Failed:
    """The message for the parent about an error that ends the process; the traceback is in the log."""
    return messages.Failed(REASON_ENGINE_CRASHED, f"The engine crashed: {type(error).__name__}: {error}.")


class MessageChannel(Protocol):
    """The channel interface that the loop needs."""

    def send(self, message: messages.FromEngine) -> None:
        """Queue a message; never blocks."""

    def received(self, wait: float) -> list[messages.ToEngine]:
        """All received messages; waits up to `wait` seconds for the first, or for `wake`."""

    def wake(self) -> None:
        """End the wait of `received`; from any thread."""


def serve(channel: MessageChannel, engine: "EngineLoop") -> None:
    """The engine loop: take messages, step, report. It blocks for messages while there is no work."""
    engine.when_step_ends(channel.wake)
    wait = IDLE_SECONDS
    while True:
        for message in channel.received(wait):
            _handle(channel, engine, message)
        if (wait := engine.seconds_until_planning) > 0.0:
            continue  # more requests may arrive before the next step must be planned
        report = engine.step()
        if report is not None:
            channel.send(report)
            if (events := engine.take_kv_events()) is not None:
                channel.send(events)
        wait = 0.0 if report is not None and engine.has_work else IDLE_SECONDS


def _handle(channel: MessageChannel, engine: "EngineLoop", message: messages.ToEngine) -> None:
    match message:
        case messages.Submit() | messages.Encode():
            rejection = engine.submit(message)
            if rejection is not None:
                channel.send(rejection)
        case messages.Cancel():
            engine.cancel(message)
        case messages.LimitsPatch():
            engine.patch(message)
        case messages.BaseLimits():
            engine.set_base_limits(message)
        case messages.TenantWeights():
            engine.set_tenant_weights(message)
        case messages.Drain():
            engine.drain()
        case messages.FollowKv():
            engine.follow_kv(message)
        case messages.StateRequest():
            channel.send(messages.StateReply(message.token, engine.state()))


def _start(channel: Channel, options: EngineOptions) -> "EngineLoop | None":
    """The loaded engine, or None after `Failed` was sent."""
    channel.send(messages.Loading("load", 0.0, 0.0))
    try:
        # torch and transformers take seconds to import, so Loading is sent first.
        from sluice_engine.core.engine import EngineLoop
        from sluice_engine.core.own_process import own_process
        from sluice_engine.errors import StartError

        logs.take_over("transformers", "huggingface_hub")
    except ImportError as error:
        channel.send(messages.Failed(REASON_ENGINE_CRASHED, f"The engine's packages cannot be imported: {error}."))
        return None
    try:
        with own_process(options):
            engine = (
                EngineLoop(options, on_progress=channel.send)
                if options.tensor_parallel == 1
                else _leading(channel, options)
            )
    except StartError as error:
        channel.send(messages.Failed(error.reason, str(error)))
        return None
    channel.send(engine.ready)
    return engine


def _leading(channel: Channel, options: EngineOptions) -> "EngineLoop":
    """The loaded engine of rank 0. Raises StartError."""
    from sluice_engine.core.engine import EngineLoop
    from sluice_engine.core.ranks.leader import RankProcesses

    ranks = RankProcesses(options, channel.folder, partial(_end_with_rank, channel))
    with ranks.loss_first():
        return EngineLoop(ranks.options, on_progress=channel.send, backend=ranks.backend(), others=ranks)


def _end_with_rank(channel: Channel, fault: "RankFault") -> None:
    """Send why a rank has ended, and end this process: it may be blocked in an operation over all ranks."""
    channel.keep_alive()
    channel.send(messages.Failed(fault.reason, fault.text))
    channel.close()
    os._exit(EXIT_CONFIG if fault.starting else EXIT_FAILED)


def main(arguments: list[str]) -> int:
    """Run until the parent ends. The exit code distinguishes a failed start from a crash."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m sluice_engine.core.process SOCKET_PATH\n")
        return EXIT_USAGE
    die_with_parent()
    logs.configure()
    options = msgspec.json.decode(os.environ[ENV_OPTIONS], type=EngineOptions)
    channel = Channel(arguments[0])
    try:
        engine = _start(channel, options)
        if engine is None:
            channel.close()
            return EXIT_CONFIG
        serve(channel, engine)
    except BaseException as error:  # noqa: BLE001 - includes SystemExit: a library's status is not ours
        channel.keep_alive()
        _log.exception("the engine crashed")
        channel.send(crash_message(error))
        channel.close()
    return EXIT_FAILED


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # skips the shutdown of torch's threads
