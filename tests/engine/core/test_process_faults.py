"""An engine process that fails: a status that says so, its traceback in the log, the reason at its parent."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sluice.contract import EXIT_FAILED, EXIT_OK, REASON_ENGINE_CRASHED
from sluice_engine import messages
from sluice_engine.sampling_params import SamplingParams
from tests.engine.core.test_process import Peer, engine_process
from tests.engine.oracle import options
from tests.engine.serving import poll

RUN = "import runpy; runpy.run_module('sluice_engine.core.process', run_name='__main__', alter_sys=True)"
STEP = """
from sluice_engine.core.engine import EngineLoop
def step(self):
    raise {error}
EngineLoop.step = step
"""
LIBRARIES = """
from sluice_engine.core.engine import EngineLoop
def step(self):
    import warnings
    from transformers.utils import logging
    logging.get_logger("transformers.utils").warning("careful")
    warnings.warn("outdated")
    raise ValueError("no row")
EngineLoop.step = step
"""
STATE = """
from sluice_engine.core.engine import EngineLoop
EngineLoop.state = lambda self: {"requests": object()}
"""
# The traceback is written only when the reader has seen the end of the socket: the parent hangs up in that moment.
LATE = """
import logging, threading
write = logging.Logger.exception
def exception(self, *arguments, **named):
    self.info("about to log")
    [reader] = [thread for thread in threading.enumerate() if thread.name == "reader"]
    reader.join(60)
    write(self, *arguments, **named)
logging.Logger.exception = exception
"""
WORK = messages.Submit("a", (5, 6, 7), SamplingParams(max_tokens=3, temperature=0.0), 0.0)


async def status(peer: Peer) -> int:
    return await asyncio.wait_for(peer.process.wait(), 60)


@pytest.mark.parametrize(
    ("error", "said"),
    [("ValueError('no such row')", "ValueError: no such row"), ("SystemExit(0)", "SystemExit: 0")],
)
async def test_a_step_that_raises_ends_the_process_with_its_traceback_and_reason(
    error: str, said: str, tiny_llama: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with engine_process(tmp_path, options(tiny_llama), STEP.format(error=error) + RUN, log) as peer:
        failed = await peer.until(messages.Failed)
        assert (failed.reason, failed.message) == (REASON_ENGINE_CRASHED, f"The engine crashed: {said}.")
        assert await status(peer) == EXIT_FAILED
    assert "Traceback" in log.read_text() and said in log.read_text()


async def test_without_a_terminal_each_log_line_is_a_json_object(tiny_llama: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with engine_process(tmp_path, options(tiny_llama), LIBRARIES + RUN, log) as peer:
        await peer.until(messages.Failed)
        await status(peer)
    *_, library, warning, crash = lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    assert (library["logger"], library["message"]) == ("transformers.utils", "careful")
    assert warning["logger"] == "py.warnings" and "outdated" in warning["message"]
    assert (crash["level"], crash["message"]) == ("error", "the engine crashed")
    assert crash["exception"].endswith("ValueError: no row")


async def unwritable(peer: Peer) -> None:
    await peer.until(messages.Ready)
    peer.send(messages.StateRequest(1))


async def unreadable(peer: Peer) -> None:
    await peer.until(messages.Ready)
    assert peer.writer is not None
    peer.writer.write(b"\xff\xff\xff\xff")  # a frame of 4 GiB


@pytest.mark.parametrize(
    ("fail", "said"),
    [(unwritable, "TypeError: Encoding objects of type object"), (unreadable, "ValueError: frame of 4294967295 bytes")],
    ids=["writer", "reader"],
)
async def test_a_thread_that_fails_ends_the_process_with_its_traceback_and_reason(
    fail: Callable[[Peer], Awaitable[None]], said: str, tiny_llama: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with engine_process(tmp_path, options(tiny_llama), STATE + RUN, log) as peer:
        await fail(peer)
        failed = await peer.until(messages.Failed)
        assert failed.reason == REASON_ENGINE_CRASHED and said in failed.message
        assert await status(peer) == EXIT_FAILED
    assert "Traceback" in log.read_text() and said in log.read_text()


async def test_a_crash_keeps_its_traceback_and_status_if_the_parent_closes_the_socket(
    tiny_llama: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    program = STEP.format(error="ValueError('no such row')") + LATE + RUN
    async with engine_process(tmp_path, options(tiny_llama), program, log) as peer:
        await asyncio.to_thread(poll, lambda: "about to log" in log.read_text(), 60, log)
        assert peer.writer is not None
        peer.writer.close()
        assert await status(peer) == EXIT_FAILED
    assert "ValueError: no such row" in log.read_text()


async def test_a_healthy_engine_exits_with_status_zero_if_the_parent_closes_the_socket(
    tiny_llama: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with engine_process(tmp_path, options(tiny_llama), RUN, log) as peer:
        await peer.until(messages.Ready)
        peer.send(WORK)
        assert peer.writer is not None
        peer.writer.close()
        assert await status(peer) == EXIT_OK
    assert "Traceback" not in log.read_text()


def test_a_message_above_the_frame_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_FRAME_BYTES", 100)
    assert messages.encode_frame(messages.StateRequest(1))
    with pytest.raises(ValueError, match=r"a StateReply of [0-9]+ bytes exceeds 100"):
        messages.encode_frame(messages.StateReply(1, {"requests": "x" * 100}))
