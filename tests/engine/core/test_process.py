"""The engine process over its socket, as the HTTP process drives it."""

import asyncio
import os
import queue
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from sluice.contract import EXIT_CONFIG, EXIT_USAGE
from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.control.step_time_fit import StepTimeFit
from sluice_engine.core.engine import EngineLoop
from sluice_engine.core.process import serve
from sluice_engine.sampling_params import SamplingParams
from sluice_perfmodel.step_time import StepTimeModel, StepWork
from tests.engine.frames import next_frame
from tests.engine.oracle import Oracle, options

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("operator", "engine", "kernels")),
    "PATH": os.environ["PATH"],
}


NO_TARGET = 1e9  # seconds

M = TypeVar("M", bound=messages.FromEngine)


class Peer:
    """The parent's end: what the engine said, and a way to answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.messages: asyncio.Queue[messages.FromEngine | None] = asyncio.Queue()
        self.writer: asyncio.StreamWriter | None = None

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        while (body := await next_frame(reader)) is not None:
            self.messages.put_nowait(messages.decode_from_engine(body))
        self.messages.put_nowait(None)

    def send(self, *sent: messages.ToEngine) -> None:
        assert self.writer is not None
        for message in sent:
            self.writer.write(messages.encode_frame(message))

    async def until(self, kind: type[M]) -> M:
        while True:
            message = await asyncio.wait_for(self.messages.get(), 60)
            assert message is not None, f"the engine went before it sent {kind}"
            if isinstance(message, kind):
                return message


@asynccontextmanager
async def engine_process(
    folder: Path, chosen: EngineOptions, program: str | None = None, log: Path = Path(os.devnull)
) -> AsyncIterator[Peer]:
    """The engine process, or a program that runs it changed; `log` gets what it writes to stderr."""
    environment = ENVIRONMENT | {"SLUICE_ENGINE_OPTIONS": msgspec.json.encode(chosen).decode()}
    path = str(folder / "engine.sock")
    peers: list[Peer] = []
    server = await asyncio.start_unix_server(lambda reader, writer: peers[0].accept(reader, writer), path)
    how = ("-m", "sluice_engine.core.process") if program is None else ("-c", program)
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(sys.executable, *how, path, env=environment, stderr=sink)
    peers.append(Peer(process))
    try:
        yield peers[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if peers[0].writer is not None:
            peers[0].writer.close()
        server.close()


async def test_it_loads_serves_and_ends_with_its_parent(tiny_llama: Path, oracle: Oracle, tmp_path: Path) -> None:
    async with engine_process(tmp_path, options(tiny_llama)) as peer:
        assert (await peer.until(messages.Loading)).phase == "load"
        ready = await peer.until(messages.Ready)
        assert (ready.dtype, ready.device, ready.vocab_size, ready.max_model_length) == ("float32", "cpu", 128, 512)
        assert set(ready.load_seconds) == {"load", "warm"}

        peer.send(messages.StateRequest(42))
        assert (await peer.until(messages.StateReply)).token == 42

        greedy = SamplingParams(max_tokens=12, temperature=0.0)
        peer.send(
            messages.Submit("a", (5, 6, 7), greedy, time.monotonic()),
            messages.Submit("bad", (5, 999), greedy, time.monotonic()),
        )
        got: list[int] = []
        bad = None
        while True:
            report = await peer.until(messages.StepReport)
            got += [token for delta in report.deltas if delta.request_id == "a" for token in delta.token_ids]
            bad = next((delta for delta in report.deltas if delta.request_id == "bad"), bad)
            if any(delta.request_id == "a" and delta.finish for delta in report.deltas):
                break
        oracle.expect([5, 6, 7], got, 12)
        assert bad is not None and bad.finish == "error"

        peer.send(messages.LimitsPatch(changes={"concurrency_max": 3}, ttl=60.0))
        while (await peer.until(messages.StepReport)).limits.limits.concurrency_max != 3:
            pass
        peer.send(messages.Drain(), messages.Submit("late", (5,), greedy, time.monotonic()))
        assert (await peer.until(messages.Rejected)).reason == "draining"

        assert peer.writer is not None
        peer.writer.close()
        assert await asyncio.wait_for(peer.process.wait(), 60) == 0


async def test_a_failed_start_reports_its_reason_and_exits(tmp_path: Path) -> None:
    async with engine_process(tmp_path, options(tmp_path / "nowhere")) as peer:
        failed = await peer.until(messages.Failed)
        assert failed.reason == "ModelNotFound" and str(tmp_path / "nowhere") in failed.message
        assert await asyncio.wait_for(peer.process.wait(), 60) == EXIT_CONFIG


class Script:
    """A channel that hands out prepared messages, one list per call, and notes how long the engine would wait."""

    def __init__(self, *batches: list[messages.ToEngine]) -> None:
        self.batches = list(batches)
        self.waits: list[float] = []
        self.sent: list[messages.FromEngine] = []

    def received(self, wait: float) -> list[messages.ToEngine]:
        self.waits.append(wait)
        if not self.batches:
            raise StopIteration
        return self.batches.pop(0)

    def wake(self) -> None:
        pass

    def send(self, message: messages.FromEngine) -> None:
        self.sent.append(message)


def test_an_idle_engine_waits_and_a_busy_one_does_not(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    work = messages.Submit("a", (5, 6, 7), SamplingParams(max_tokens=3, temperature=0.0), 0.0)
    script = Script([], [work], [], [], [], [])
    with pytest.raises(StopIteration):
        serve(script, engine)
    assert script.waits == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert sum(report.generated_tokens for report in script.sent if isinstance(report, messages.StepReport)) == 3


def test_an_engine_with_a_concurrency_of_zero_waits_without_a_busy_loop(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    work = messages.Submit("a", (5, 6, 7), SamplingParams(max_tokens=3, temperature=0.0), 0.0)
    closed = messages.LimitsPatch(changes={"concurrency_min": 0, "concurrency_max": 0}, ttl=60.0)
    script = Script([closed, work], [], [], [])
    with pytest.raises(StopIteration):
        serve(script, engine)
    assert script.waits[-2:] == [1.0, 1.0]


class Woken(Script):
    """A channel whose waits end when the engine wakes it. Raises queue.Empty if it does not within a minute."""

    def __init__(self, *batches: list[messages.ToEngine], steps: int) -> None:
        super().__init__(*batches)
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._steps = steps

    def received(self, wait: float) -> list[messages.ToEngine]:
        if self.batches:
            return self.batches.pop(0)
        if sum(isinstance(each, messages.StepReport) for each in self.sent) >= self._steps:
            raise StopIteration
        if wait > 0:
            self.waits.append(wait)
            self._wakes.get(timeout=60)
        return []

    def wake(self) -> None:
        self._wakes.put(None)


class TooSlow(StepTimeFit):
    """A fit that predicts an hour for each step, and learns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.model = StepTimeModel(base=3600.0, steps=10**6)

    def observe(self, work: StepWork, seconds: float) -> None:
        pass


def test_a_step_that_ends_before_its_predicted_end_is_not_waited_for(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama, speculation="off", itl_target=NO_TARGET, ttft_target=NO_TARGET))
    engine.fit = TooSlow()
    work = messages.Submit("a", (5, 6, 7), SamplingParams(max_tokens=6, temperature=0.0), 0.0)
    script = Woken([work], steps=6)
    with pytest.raises(StopIteration):
        serve(script, engine)
    assert max(script.waits) > 3000.0  # the prediction, which held the next step back


async def test_without_a_socket_path_it_prints_its_usage() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sluice_engine.core.process", env=ENVIRONMENT, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == EXIT_USAGE and b"usage" in errors
