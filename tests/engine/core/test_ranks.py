"""The processes that share a model: they serve what one process serves, and the end of one is the end of the engine."""

import asyncio
import os
import re
import signal
import time
from pathlib import Path

from sluice.contract import EXIT_CONFIG, EXIT_FAILED, REASON_ENGINE_CRASHED, REASON_INVALID_OPTION
from sluice_engine import messages
from sluice_engine.sampling_params import SamplingParams
from tests.engine.core.test_process import engine_process
from tests.engine.oracle import Oracle, options

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = (Path("/proc") / str(pid) / "task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


async def test_two_processes_serve_one_model_and_the_loss_of_one_ends_the_engine(
    tiny_llama: Path, oracle: Oracle, tmp_path: Path
) -> None:
    chosen = options(tiny_llama, tensor_parallel=2, device="cpu", max_num_seqs=4, kv_size=None)
    async with engine_process(tmp_path, chosen, log=tmp_path / "log") as peer:
        await peer.until(messages.Ready)
        submit = messages.Submit("a", (5, 6, 7), GREEDY, time.monotonic())
        peer.send(submit, messages.Submit("bad", (5, 999), GREEDY, time.monotonic()))
        got: list[int] = []
        ended: dict[str, str] = {}
        while ended.keys() < {"a", "bad"}:
            for delta in (await peer.until(messages.StepReport)).deltas:
                got += delta.token_ids if delta.request_id == "a" else ()
                ended |= {delta.request_id: delta.finish} if delta.finish else {}
        oracle.expect([5, 6, 7], got, 12)
        assert ended["bad"] == "error"

        (rank,) = children(peer.process.pid)
        endless = SamplingParams(max_tokens=400, temperature=0.0, ignore_eos=True)
        peer.send(messages.Submit("b", (5, 6, 7), endless, time.monotonic()))
        await peer.until(messages.StepReport)
        os.kill(rank, signal.SIGKILL)
        failed = await peer.until(messages.Failed)
        assert failed.reason == REASON_ENGINE_CRASHED
        assert failed.message == f"Rank 1 of 2 (process {rank}) ended: killed by SIGKILL."
        assert await asyncio.wait_for(peer.process.wait(), 60) == EXIT_FAILED


async def test_a_number_that_does_not_divide_the_heads_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    async with engine_process(tmp_path, options(tiny_llama, tensor_parallel=3, device="cpu")) as peer:
        failed = await peer.until(messages.Failed)
        assert failed.reason == REASON_INVALID_OPTION
        assert re.search(r"4 attention heads cannot be divided by 3; .* one of 1, 2, 4\.", failed.message)
        assert await asyncio.wait_for(peer.process.wait(), 60) == EXIT_CONFIG


async def test_the_ranks_end_with_the_engine_process(tiny_llama: Path, tmp_path: Path) -> None:
    async with engine_process(tmp_path, options(tiny_llama, tensor_parallel=2, device="cpu")) as peer:
        await peer.until(messages.Ready)
        (rank,) = children(peer.process.pid)
        descriptor = os.pidfd_open(rank)
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, gone.set)
        peer.process.kill()
        await asyncio.wait_for(gone.wait(), 60)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
