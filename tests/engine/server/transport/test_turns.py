"""A burst of reads is spread over turns of the event loop: in order, none lost, and others run in between."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.httpapi import turns
from sluice.httpapi.turns import READS_PER_TURN, Turns


class Reader:
    """Keeps what it reads, with the turn of the loop in which it did."""

    def __init__(self, name: int, seen: list[tuple[int, bytes]]) -> None:
        self.name, self._seen = name, seen

    def read(self, data: bytes) -> None:
        self._seen.append((self.name, data))


async def arrive(bursts: list[list[int]]) -> tuple[list[tuple[int, bytes]], list[int], list[tuple[int, bytes]]]:
    """Each burst of reads comes in one turn of the loop. Returns what was read, the reads per turn, and what came."""
    seen: list[tuple[int, bytes]] = []
    came: list[tuple[int, bytes]] = []
    queue, readers = Turns(asyncio.get_running_loop()), [Reader(name, seen) for name in range(5)]
    per_turn: list[int] = []
    pending, number = list(bursts), 0
    while pending or len(seen) < len(came):
        before = len(seen)
        for name in pending.pop(0) if pending else []:
            number += 1
            data = b"%d" % number
            came.append((name, data))
            if queue.admit(readers[name], data):
                readers[name].read(data)
        await asyncio.sleep(0)
        per_turn.append(len(seen) - before)
        assert len(per_turn) < 10_000
    return seen, per_turn, came


@given(st.lists(st.lists(st.integers(0, 4), max_size=40), max_size=8))
def test_every_read_is_made_once_and_those_of_a_connection_in_order(bursts: list[list[int]]) -> None:
    seen, per_turn, came = asyncio.run(arrive(bursts))
    assert sorted(seen) == sorted(came)
    for name in range(5):
        assert [data for owner, data in seen if owner == name] == [data for owner, data in came if owner == name]
    assert max(per_turn, default=0) <= 2 * READS_PER_TURN  # those that came, and the first turn of those that waited


def test_a_burst_takes_many_turns_in_which_others_run() -> None:
    seen, per_turn, _ = asyncio.run(arrive([[number % 5 for number in range(1000)]]))
    assert len(seen) == 1000 and len(per_turn) >= 1000 // READS_PER_TURN - 1


def test_few_reads_do_not_wait() -> None:
    async def go() -> None:
        seen: list[tuple[int, bytes]] = []
        queue = Turns(asyncio.get_running_loop())
        for _ in range(10):
            assert all(queue.admit(Reader(name, seen), b"x") for name in range(READS_PER_TURN))
            await asyncio.sleep(0)

    asyncio.run(go())


def test_waiting_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound bytes are read at once."""
    monkeypatch.setattr(turns, "MAX_WAITING_BYTES", 10)

    async def go() -> None:
        seen: list[tuple[int, bytes]] = []
        queue = Turns(asyncio.get_running_loop())
        admitted = [queue.admit(Reader(name, seen), b"1234") for name in range(READS_PER_TURN + 5)]
        assert admitted == [True] * READS_PER_TURN + [False] * 2 + [True] * 3
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [data for _, data in seen] == [b"1234"] * 2

    asyncio.run(go())
