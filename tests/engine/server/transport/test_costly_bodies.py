"""Bodies that ask for much cost little: of processor time, of one turn of the event loop, and of other clients.

Processor time is measured, not time, so that a busy machine fails no test.
"""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.server.api.generation.test_handlers import Desk, desk_of
from tests.engine.server.transport.conftest import GOOD
from tests.engine.server.transport.test_http import head, status_of
from tests.engine.serving import CHAT, Reader, Served, body

COMPLETIONS = "/v1/completions"
TURN_SECONDS = 0.05
ASKED = {"model": "tiny", "messages": GOOD["messages"]}
PROMPT = {"model": "tiny", "prompt": "a"}
ROWS: dict[str, tuple[str, dict[str, Any], int]] = {
    "n": (CHAT, ASKED | {"n": 10**9}, 400),
    "best_of": (COMPLETIONS, PROMPT | {"best_of": 10**9}, 400),
    "max_tokens": (CHAT, ASKED | {"max_tokens": 10**9}, 400),
    "many prompts": (COMPLETIONS, PROMPT | {"prompt": ["a"] * 100_000}, 400),
    "five stops": (CHAT, ASKED | {"stop": ["a"] * 5}, 400),
    "a long stop": (CHAT, ASKED | {"stop": "a" * 1_000_000}, 400),
    "many top_logprobs": (CHAT, ASKED | {"logprobs": True, "top_logprobs": 21}, 400),
    "top_logprobs alone": (CHAT, ASKED | {"top_logprobs": 2}, 400),
    "a negative bias": (CHAT, ASKED | {"logit_bias": {"-1": 1}}, 400),
    "a bias of no token": (CHAT, ASKED | {"logit_bias": {"999999999": 1}}, 400),
    "many biases": (CHAT, ASKED | {"logit_bias": {str(index): 1 for index in range(50_000)}}, 400),
    "biases beyond the body's limit": (CHAT, ASKED | {"logit_bias": {str(index): 1 for index in range(10**6)}}, 413),
}


def processor_seconds(pid: int) -> float:
    """Processor time of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9


@pytest.mark.parametrize("name", ROWS)
def test_a_body_that_asks_for_too_much_costs_less_than_50_ms(served: Served, name: str) -> None:
    path, fields, status = ROWS[name]
    raw, costs = json.dumps(fields).encode(), []
    for _ in range(3):  # the least of them: garbage collection and scrapes are not the request's
        before = processor_seconds(served.process.pid)
        assert served.request("POST", path, raw).status == status
        costs.append(processor_seconds(served.process.pid) - before)
    assert min(costs) < 0.05, costs


def test_neighbours_output_is_the_same_byte_for_byte(served: Served) -> None:
    wanted = body(1000, stream=False) | {"temperature": 0.8, "seed": 7}
    alone = served.request("POST", CHAT, wanted).json()["choices"]
    reader = Reader(served, wanted)
    served.wait(lambda: served.admin("GET", "/state").json()["server"]["in_flight"] == 1)
    for path, fields, status in ROWS.values():
        assert served.request("POST", path, fields).status == status
    reader.join(120)
    assert reader.status == 200 and json.dumps(json.loads(reader.text)["choices"]) == json.dumps(alone)


@pytest.fixture
async def desk(tiny_model: Path) -> AsyncIterator[Desk]:
    async for desk in desk_of(tiny_model, "generate"):
        yield desk


class LongestTurn:
    """Runs in every turn of the event loop, and keeps the most processor time between two of its runs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last = time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._look)

    def _look(self) -> None:
        now = time.thread_time()
        self.seconds, self._last = max(self.seconds, now - self._last), now
        self._next = self._loop.call_soon(self._look)

    def stop(self) -> None:
        self._next.cancel()


async def test_a_hundred_thousand_chunks_never_hold_the_event_loop(desk: Desk) -> None:
    asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": " " * 100_000}]}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in asked) + b"0\r\n\r\n"
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close")

    def exchange() -> bytes:
        with socket.create_connection(("127.0.0.1", desk.port), timeout=120) as connection:
            connection.sendall(head(CHAT, *lines) + chunks)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    turns = LongestTurn()
    response = await asyncio.to_thread(exchange)
    turns.stop()
    assert status_of(response) == 400  # only because it exceeds the context
    assert turns.seconds < TURN_SECONDS
