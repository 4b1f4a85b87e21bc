"""The engine's socket as a protocol: frames in any pieces, the end of the connection, backpressure."""

import asyncio
import struct

import msgspec
import pytest

from sluice_engine import messages
from sluice_engine.server.engine.connection import EngineConnection

SENT = [messages.StateReply(token, {"text": "x" * 300 * token}) for token in range(3)]


class Owner:
    """Takes what the connection tells."""

    def __init__(self) -> None:
        self.messages: list[messages.FromEngine] = []
        self.ends: list[Exception | None] = []
        self.connection = EngineConnection(lambda _: True, self.messages.append, self.ends.append)
        self.connection.connection_made(asyncio.Transport())


@pytest.mark.parametrize("size", [1, 3, 7, 200, 10_000])
def test_frames_that_come_in_pieces_are_delivered_in_order(size: int) -> None:
    owner = Owner()
    data = b"".join(messages.encode_frame(each) for each in SENT)
    for begin in range(0, len(data), size):
        owner.connection.data_received(data[begin : begin + size])
    assert owner.messages == SENT
    assert owner.ends == []


def test_a_frame_that_is_too_long_ends_the_connection_with_the_reason() -> None:
    owner = Owner()
    owner.connection.data_received(struct.pack(">I", messages.MAX_FRAME_BYTES + 1))
    owner.connection.data_received(messages.encode_frame(SENT[0]))
    owner.connection.connection_lost(None)
    assert [str(each) for each in owner.ends] == [f"frame of {messages.MAX_FRAME_BYTES + 1} bytes exceeds 67108864"]
    assert owner.messages == []


def test_a_message_of_another_kind_ends_the_connection() -> None:
    owner = Owner()
    owner.connection.data_received(messages.encode_frame(messages.Drain()))
    (error,) = owner.ends
    assert isinstance(error, msgspec.ValidationError)


def test_a_refused_connection_is_not_read() -> None:
    taken: list[object] = []

    class Transport(asyncio.Transport):
        def close(self) -> None:
            taken.append("closed")

    connection = EngineConnection(lambda _: False, taken.append, taken.append)
    connection.connection_made(Transport())
    connection.data_received(messages.encode_frame(SENT[0]))
    connection.connection_lost(None)
    assert taken == ["closed"]


async def test_a_full_buffer_holds_every_writer_until_it_has_room() -> None:
    owner = Owner()
    owner.connection.pause_writing()
    cancelled, waiting = (asyncio.create_task(owner.connection.drain()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    assert not waiting.done()
    owner.connection.resume_writing()
    await waiting
    await owner.connection.drain()


async def test_the_end_of_the_connection_fails_those_who_wait_to_write() -> None:
    owner = Owner()
    owner.connection.pause_writing()
    waiting = asyncio.create_task(owner.connection.drain())
    await asyncio.sleep(0)
    owner.connection.connection_lost(None)
    owner.connection.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await waiting
    with pytest.raises(ConnectionResetError):
        await owner.connection.drain()
    assert owner.ends == [None]
