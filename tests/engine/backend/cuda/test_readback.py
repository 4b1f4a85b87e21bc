"""What comes back from the device: one copy per step, and the time of a step by the device's clock."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.readback import LOGPROB_COUNTS, Readback
from sluice_engine.core.engine import EngineLoop
from tests.engine.backend.cuda.simulated_device import ClockedQueue, FixedMemory, LatePipeline
from tests.engine.families import FAMILIES, save
from tests.engine.oracle import options, run, submit

CPU = torch.device("cpu")
ROWS = 6
DEVICE_SECONDS = 1000.0  # no step takes the host so long


class Copies(TorchDispatchMode):
    """Counts operations that copy."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        self.found[function.overloadpacket.__name__] += 1
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize("logprobs", [0, *LOGPROB_COUNTS, 33, 40])
def test_one_copy_brings_the_tokens_and_logprobs_of_a_step(logprobs: int) -> None:
    readback = Readback(ROWS, 40, CPU)
    readback.sampled.copy_(torch.arange(ROWS) - 1)
    values, ids = readback.scored(4, logprobs)
    ids.copy_(torch.arange(4 * logprobs).view(4, logprobs))
    values.copy_(-torch.arange(4 * (1 + logprobs)).view(4, 1 + logprobs) / 8)
    with Copies() as copies:
        readback.download(1, 4, logprobs)
    assert copies.found["copy_"] == 1
    assert readback.read(1, 4).tolist() == [-1, 0, 1, 2]
    assert readback.read(0, 4).tolist() == [0, 0, 0, 0]
    first = 2 * (1 + logprobs)
    top = [(2 * logprobs + at, -(first + 1 + at) / 8) for at in range(logprobs)]
    expected = {2: (-first / 8, top)} if logprobs else {}
    found = readback.logprobs(1, 4, logprobs, [(2, logprobs)] if logprobs else [])
    assert {row: (one.logprob, list(one.top)) for row, one in found.items()} == expected


def late_engine(folder: Path, seconds: float) -> EngineLoop:
    backend = CudaBackend(CPU, FixedMemory(), ClockedQueue(seconds))
    engine = EngineLoop(options(folder, max_num_seqs=4, speculation="off"), backend=backend)
    engine._pipeline = LatePipeline(engine.runner)
    return engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(FAMILIES["llama"](), tmp_path_factory.mktemp("llama"))


def test_a_decode_step_behind_another_is_timed_by_the_device(folder: Path) -> None:
    engine = late_engine(folder, DEVICE_SECONDS)
    submit(engine, "a", [5, 6, 7], 12, ignore_eos=True)
    reports = run(engine)
    timed = [report.seconds for report in reports if report.seconds == DEVICE_SECONDS]
    others = [report.seconds for report in reports if report.seconds != DEVICE_SECONDS]
    assert len(timed) >= 8  # all decode steps but the first, and the last ones that nothing was enqueued behind
    assert all(seconds < DEVICE_SECONDS for seconds in others)
