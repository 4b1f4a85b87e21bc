"""Streams under faults of metrics, the engine's exit and clients that do not read.

The tests use real sockets and act as the engine.
"""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice import contract
from sluice_engine import messages
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.server.engine.client import MAX_PENDING_DELTAS, EngineClient, Listener
from sluice_engine.server.metrics import EngineMetrics
from tests.engine.server.api.generation.test_handlers import Desk, FakeEngineClient, desk_of
from tests.engine.server.transport.test_connection_limits import until

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
WORDS = tuple(range(5, 105)) * 4  # token ids of a delta with about a thousand bytes of text


class Wired(FakeEngineClient):
    """A client over a socket. The test is the other end."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._connection = None

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    def send(self, message: messages.ToEngine) -> None:
        EngineClient.send(self, message)

    @asynccontextmanager
    async def engine(self, folder: Path) -> AsyncIterator[socket.socket]:
        """Yields the engine's end of the socket once the client has accepted it."""
        path = str(folder / "engine.sock")
        server = await asyncio.get_running_loop().create_unix_server(self._protocol, path)
        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(path)
            await until(lambda: self._connection is not None)
            try:
                yield ours
            finally:
                ours.close()
                await until(self._ended.is_set)
                server.close()

    def stall(self) -> None:
        """Fills the buffers of the kernel and of the transport, so that the engine's socket accepts no more bytes."""
        assert self._connection is not None
        assert self._connection.transport is not None
        self._connection.transport.set_write_buffer_limits(high=0)
        prompt = (5,) * 1_000_000
        self.send(messages.Submit("large", prompt, SamplingParams(max_tokens=1), 0.0))
        assert self._connection.transport.get_write_buffer_size() > 0


class Broken:
    """A listener that raises at every message."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics

    def on_loading(self, message: messages.Loading) -> None:
        raise KeyError("loading")

    def on_ready(self, message: messages.Ready) -> None:
        raise KeyError("ready")

    def on_step(self, report: messages.StepReport, now: float) -> None:
        raise ValueError("step")

    def on_report(self, report: messages.StepReport) -> None:
        raise ValueError("report")

    def on_rejected(self, message: messages.Rejected) -> None:
        raise KeyError("rejected")

    def on_fault(self, error: Exception) -> None:
        self._metrics.on_fault(error)


@pytest.fixture
async def generates(tiny_model: Path) -> AsyncIterator[Desk]:
    async for desk in desk_of(tiny_model, "generate"):
        yield desk


@pytest.fixture
async def unheard(tiny_model: Path) -> AsyncIterator[Desk]:
    """A desk whose listener raises."""
    async for desk in desk_of(tiny_model, "generate", lambda metrics: Wired(Broken(metrics))):
        yield desk


@pytest.fixture
async def wired(tiny_model: Path) -> AsyncIterator[Desk]:
    async for desk in desk_of(tiny_model, "generate", Wired):
        yield desk


async def test_a_listener_that_raises_is_logged_and_counted_and_ends_no_stream(
    unheard: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = unheard.client
    assert isinstance(client, Wired)
    caplog.set_level(logging.ERROR, "sluice.faults")
    async with client.engine(tmp_path) as engine:
        calls = [unheard.post(contract.PATH_CHAT_COMPLETIONS, CHAT) for _ in range(2)]
        await until(lambda: client.in_flight == 2)
        answered, refused = client._streams
        engine.sendall(messages.encode_frame(unheard.story.report(messages.Delta(answered, (5,)))))
        engine.sendall(messages.encode_frame(messages.Rejected(refused, "queue_full", 1.0, "full")))
        engine.sendall(messages.encode_frame(unheard.story.report(messages.Delta(answered, (5,), "length"))))
        found = [await call for call in calls]
        assert sorted(status for status, _ in found) == [200, 503]
        assert next(body for status, body in found if status == 200).endswith(b"data: [DONE]\n\n")
        assert client.alive
    assert unheard.story.value(contract.METRICS_FAULTS) == 6  # ready, two steps and their reports, a rejection
    assert unheard.outcomes()["length"] == 1  # counted by its handler, because the listener failed
    assert "Traceback" in caplog.text and "ValueError: step" in caplog.text


async def test_a_fault_in_one_metric_changes_no_response_and_no_outcome(
    generates: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no such bucket")

    for name in ("_ttft", "_queue", "_running", "_duration"):
        number = getattr(generates.story.metrics, name)
        monkeypatch.setattr(number, "set" if name == "_running" else "observe", broken)
    call = generates.post(contract.PATH_CHAT_COMPLETIONS, CHAT)
    await until(lambda: len(generates.client.sent) == 1)
    generates.client.say(generates.story.report(messages.Delta(generates.client.sent[0].request_id, (5,), "length")))
    status, body = await call
    assert (status, body.endswith(b"data: [DONE]\n\n")) == (200, True)
    await until(lambda: generates.outcomes() == {"length": 1})
    assert generates.story.value(contract.METRICS_FAULTS) == 3  # one each of the report, the delta and the end


def silent(desk: Desk) -> socket.socket:
    """Returns a client that requests a stream and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", desk.port))
    body = json.dumps({"model": "m"} | CHAT).encode()
    head = f"POST {contract.PATH_CHAT_COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    client.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    client.setblocking(False)
    return client


async def rest(client: socket.socket) -> bytes:
    """Returns all bytes that the client reads until the connection is closed or reset."""
    received, loop = b"", asyncio.get_running_loop()
    try:
        while part := await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 60):
            received += part
    except ConnectionResetError:
        pass
    return received


async def fill(desk: Desk, name: str) -> None:
    """Sends output for a client that does not read until its handler blocks: kernel and transport buffers are full."""
    (connection,) = desk.server.connections
    for _ in range(MAX_PENDING_DELTAS):
        if connection.writing_paused:
            break
        desk.client.say(desk.story.report(messages.Delta(name, WORDS)))
        await asyncio.sleep(0)
    assert connection.writing_paused, "the kernel takes everything"
    for _ in range(100):  # aiohttp accepts 64 KiB before it checks for backpressure
        desk.client.say(desk.story.report(messages.Delta(name, WORDS)))
        await asyncio.sleep(0)


async def received(client: socket.socket) -> bytes:
    """Returns what has arrived in one piece."""
    return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1 << 20), 60)


async def test_headers_come_with_the_first_event_and_the_end_with_the_last(generates: Desk) -> None:
    with silent(generates) as client:
        await until(lambda: len(generates.client.sent) == 1)
        name = generates.client.sent[0].request_id
        generates.client.say(generates.story.report(messages.Delta(name, (5,))))
        first = await received(client)
        assert first.startswith(b"HTTP/1.1 200 OK\r\n")
        assert first.count(b"data: ") == 2  # the role, and the first token
        generates.client.say(generates.story.report(messages.Delta(name, (6,), "length")))
        assert (await received(client)).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


async def test_a_failure_in_the_first_step_is_a_500(generates: Desk) -> None:
    call = generates.post(contract.PATH_CHAT_COMPLETIONS, CHAT)
    await until(lambda: len(generates.client.sent) == 1)
    generates.client.say(generates.story.report(messages.Delta(generates.client.sent[0].request_id, (), "error")))
    status, body = await call
    assert (status, json.loads(body)["error"]["code"]) == (500, "internal_error")


async def test_an_engine_exit_during_a_blocked_write_is_an_error_event_for_the_client(
    generates: Desk,
) -> None:
    with silent(generates) as client:
        await until(lambda: len(generates.client.sent) == 1)
        await fill(generates, generates.client.sent[0].request_id)
        assert generates.outcomes() == {}
        generates.client._end()
        await until(lambda: generates.outcomes() == {"error": 1})  # at once, before the client has read a byte
        events = (await rest(client)).split(b"data: ")
        assert json.loads(events[-1].partition(b"\n\n")[0])["error"]["code"] == "internal_error"
    assert generates.outcomes() == {"error": 1}


async def test_an_engine_exit_before_a_request_is_read_counts_as_error_not_abort(wired: Desk, tmp_path: Path) -> None:
    client = wired.client
    assert isinstance(client, Wired)
    async with client.engine(tmp_path) as engine:
        client.stall()
        calls = [wired.post(contract.PATH_CHAT_COMPLETIONS, {**CHAT, "stream": bool(each % 2)}) for each in range(4)]
        await until(lambda: client.in_flight == 4)
        engine.close()  # unread data turns the close into a reset
        found = [await call for call in calls]
    assert [status for status, _ in found] == [500] * 4
    assert {json.loads(body)["error"]["code"] for _, body in found} == {"internal_error"}
    assert wired.outcomes() == {"error": 4}


async def test_a_client_that_never_reads_is_cut_off_and_others_get_all_events(generates: Desk) -> None:
    with silent(generates) as client:
        await until(lambda: len(generates.client.sent) == 1)
        name = generates.client.sent[0].request_id
        await fill(generates, name)
        other = generates.post(contract.PATH_COMPLETIONS, {"prompt": "hello", "stream": True})
        await until(lambda: len(generates.client.sent) == 2)
        steps = 0
        while messages.Cancel(name, "abort") not in generates.client.sent[2:]:
            deltas = (messages.Delta(name, (5,)), messages.Delta(generates.client.sent[1].request_id, (5,)))
            generates.client.say(generates.story.report(*deltas))
            steps += 1
            assert steps <= MAX_PENDING_DELTAS
            await asyncio.sleep(0)
        await until(lambda: generates.outcomes() == {"abort": 1})  # without a further wait
        generates.client.say(
            generates.story.report(messages.Delta(generates.client.sent[1].request_id, (5,), "length"))
        )
        status, body = await other
        assert (status, body.endswith(b"data: [DONE]\n\n")) == (200, True)
        received = await rest(client)
        assert b"[DONE]" not in received
        assert len(received) < MAX_PENDING_DELTAS * len(WORDS)
    assert generates.outcomes() == {"abort": 1, "length": 1}


async def test_an_unreadable_engine_message_is_reported_as_the_reason(wired: Desk, tmp_path: Path) -> None:
    client = wired.client
    assert isinstance(client, Wired)
    async with client.engine(tmp_path) as engine:
        call = wired.post(contract.PATH_CHAT_COMPLETIONS, CHAT)
        await until(lambda: client.in_flight == 1)
        engine.sendall(b"\x00\x00\x00\x01\xc1")
        assert (await call)[0] == 500
    assert client.failed is not None
    assert client.failed.reason == contract.REASON_ENGINE_CRASHED
    assert "could not be decoded" in client.failed.message
