"""The lines of requests are written together and in order, and none is lost at an orderly end."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from sluice import logs
from sluice.log_batches import DELAY_SECONDS, BatchedLines, write_together
from tests.operator.virtual_time import run_virtual

NAME = "test.batched"


class Counted(io.StringIO):
    """A stream that counts its writes."""

    writes = 0

    def write(self, text: str, /) -> int:
        self.writes += 1
        return super().write(text)

    @property
    def messages(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.getvalue().splitlines()]


@pytest.fixture
def stream() -> Iterator[Counted]:
    root, own = logging.getLogger(), logging.getLogger(NAME)
    before = root.handlers[:], root.level
    stream = Counted()
    logs.configure(logs.LogSettings("json"), stream)
    write_together(NAME)
    yield stream
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    own.handlers.clear()
    own.propagate = True


def test_lines_of_one_moment_are_one_write(stream: Counted) -> None:
    async def log_some() -> tuple[int, int]:
        for number in range(5):
            logging.getLogger(NAME).info("request %d", number)
        at_once = stream.writes
        await asyncio.sleep(2 * DELAY_SECONDS)
        return at_once, stream.writes

    assert run_virtual(log_some()) == (0, 1)
    assert stream.messages == [f"request {number}" for number in range(5)]


def test_without_a_loop_a_line_is_written_at_once_and_after_those_that_wait(stream: Counted) -> None:
    async def log_one() -> None:
        logging.getLogger(NAME).info("in the loop")

    asyncio.run(log_one())  # it ends before the line is due
    logging.getLogger(NAME).info("after it")
    assert stream.messages == ["in the loop", "after it"]


def test_the_next_loop_writes_its_lines_too(stream: Counted) -> None:
    async def log_one(message: str) -> None:
        logging.getLogger(NAME).info(message)
        await asyncio.sleep(2 * DELAY_SECONDS)

    async def log_and_end() -> None:
        logging.getLogger(NAME).info("first")

    asyncio.run(log_and_end())
    run_virtual(log_one("second"))
    assert stream.messages == ["first", "second"]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_line_that_cannot_be_formatted_is_reported_and_loses_no_other(
    stream: Counted, capsys: pytest.CaptureFixture[str]
) -> None:
    """The handler itself: pytest's own one, beside it, raises such errors."""
    batched = next(one for one in logging.getLogger(NAME).handlers if isinstance(one, BatchedLines))

    async def log_both() -> None:
        for text in ("before", Unprintable()):
            batched.handle(logging.makeLogRecord({"msg": "%s", "args": (text,)}))
        await asyncio.sleep(2 * DELAY_SECONDS)

    run_virtual(log_both())
    assert stream.messages == ["before"]
    assert "no text" in capsys.readouterr().err
