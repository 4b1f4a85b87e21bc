"""The KV pool is a share of the device memory that is free beside the weights, the graphs and the largest step."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sluice_engine.backend.base import ReadModule
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cuda import backend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.device_queue import Work
from sluice_engine.backend.cuda.graphs import run_eagerly
from sluice_engine.backend.cuda.memory import Measured, kv_budget
from sluice_engine.backend.cuda.runner import GraphRunner
from sluice_engine.backend.resources import binary_size
from sluice_engine.backend.runner import Runner
from sluice_engine.core.startup import LoadedEngine
from sluice_engine.errors import InsufficientMemory
from sluice_engine.model.introspection import Structure
from tests.engine.oracle import options

TOTAL = 80 << 30
BLOCK_BYTES = 2 * 2 * 16 * 2 * 16 * 4  # keys and values, layers, tokens, KV heads, dimension, float32
TRIAL_POOL = 2 * BLOCK_BYTES  # its block and the null block
REQUEST_BYTES = 512 // 16 * BLOCK_BYTES
STEP_BYTES = 12345


class Shapes(TorchDispatchMode):
    """Notes the shapes of all tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        result = function(*given, **(named or {}))
        self.found |= {tuple(each.shape) for each in tree_leaves(result) if isinstance(each, torch.Tensor)}
        return result


class Device:
    """An accelerator's memory, `taken` by what was loaded or captured; the largest step holds STEP_BYTES more."""

    def __init__(self) -> None:
        self.taken = 0
        self.taken_when_read: list[int] = []
        self.shapes: list[set[tuple[int, ...]]] = []  # of the tensors of each measured step

    def read(self) -> tuple[int, int]:
        self.taken_when_read.append(self.taken)
        return TOTAL - self.taken, TOTAL

    def peak_of(self, work: Work) -> int:
        with Shapes() as seen:
            work()
        self.shapes.append(seen.found)
        return STEP_BYTES


class SmallBackend(CudaBackend):
    """A device whose weights leave 101 blocks and a step; a graph takes 10 bytes. Its tensors are on the processor."""

    def __init__(self, memory: Device) -> None:
        def capture(work: Work) -> Work:
            memory.taken += 10
            self.captured += 1
            return run_eagerly(work)

        super().__init__(torch.device("cpu"), memory, capture=capture)
        self._device_memory, self.captured = memory, 0

    def load(self, read: ReadModule, dtype: torch.dtype) -> tuple[torch.nn.Module, Structure]:
        loaded = super().load(read, dtype)
        self._device_memory.taken = TOTAL - 101 * BLOCK_BYTES - STEP_BYTES
        return loaded


@pytest.fixture
def device() -> Device:
    return Device()


def started(folder: Path, device: Device, **changes: object) -> LoadedEngine:
    return LoadedEngine(options(folder, **changes), lambda _: None, lambda: 0.0, SmallBackend(device))


def test_the_budget_is_what_is_free_with_the_trials_pool_and_without_its_step() -> None:
    assert kv_budget(Measured(free=1000, total=5000, pool=30, step=200)) == 830
    assert kv_budget(Measured(free=100, total=5000, pool=30, step=200)) == 0


@pytest.mark.parametrize(("fraction", "blocks"), [(1.0, 102), (0.5, 51), (0.33, 33)])
def test_the_pool_is_a_share_of_what_weights_graphs_and_a_step_leave(
    tiny_llama: Path, device: Device, fraction: float, blocks: int
) -> None:
    found = started(tiny_llama, device, kv_size=None, kv_memory_fraction=fraction, max_num_seqs=4)
    assert found.config.num_blocks == blocks  # 101 and the two of the trial's pool, less the graphs' 30 bytes
    loaded = TOTAL - 101 * BLOCK_BYTES - STEP_BYTES
    assert device.taken_when_read == [0, loaded + 30]  # whether the weights fit; then with the graphs of 1, 2 and 4


@pytest.mark.parametrize(("tokens", "sequences"), [(64, 4), (300, 7), (3, 16)])
def test_the_measured_step_has_the_most_tokens_and_sequences(
    tiny_llama: Path, device: Device, tokens: int, sequences: int
) -> None:
    changes = {"kv_size": None, "max_batched_tokens": tokens, "max_num_seqs": sequences}
    found = started(tiny_llama, device, **changes)
    inner, vocab = found.model.module.config.intermediate_size, found.model.vocab_size
    (shapes,) = device.shapes
    assert {(tokens, 2 * inner), (min(tokens, sequences), vocab)} <= shapes  # gate and up, and the logits


def test_the_trial_is_freed_before_the_pool_is_allocated(
    tiny_llama: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[weakref.ref[Runner]] = []
    initialise = Runner.__init__

    def counted(self: Runner, *given: Any, **named: Any) -> None:
        assert not [each() for each in alive if each() is not None]
        initialise(self, *given, **named)
        alive.append(weakref.ref(self))

    monkeypatch.setattr(Runner, "__init__", counted)
    started(tiny_llama, device, kv_size=None, max_num_seqs=2, max_batched_tokens=64)
    assert len(alive) == 2


def test_a_device_with_too_little_memory_is_reported_with_both_sizes_and_two_remedies(
    tiny_llama: Path, device: Device
) -> None:
    with pytest.raises(InsufficientMemory) as caught:
        started(tiny_llama, device, kv_size=None, kv_memory_fraction=0.2, max_num_seqs=1)
    message = str(caught.value)
    assert (
        f"512 tokens needs {binary_size(REQUEST_BYTES)}, and {binary_size(20 * BLOCK_BYTES)} are available" in message
    )
    free = 103 * BLOCK_BYTES - 10
    assert f"which has {binary_size(TOTAL)} and {binary_size(free)} of them free beside the weights" in message
    assert f"the {binary_size(STEP_BYTES)} of a step" in message
    assert "a larger --kv-memory-fraction" in message
    assert "--max-model-length 320 would fit" in message
    assert "container" not in message


def test_a_step_that_cannot_be_computed_is_reported_with_its_size(tiny_llama: Path, device: Device) -> None:
    def failing(work: Work) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    device.peak_of = failing  # type: ignore[method-assign]
    with pytest.raises(
        InsufficientMemory, match=r"step of 64 tokens in 4 seq.* Tried to allocate 2 GiB.*lower --max-b"
    ):
        started(tiny_llama, device, kv_size=None, max_batched_tokens=64, max_num_seqs=4)


def test_a_size_that_was_asked_for_needs_no_trial_but_must_be_free(tiny_llama: Path, device: Device) -> None:
    free = binary_size(101 * BLOCK_BYTES + STEP_BYTES)
    with pytest.raises(InsufficientMemory, match=rf"asks for 4 MiB, and {free} are .* leave it"):
        started(tiny_llama, device, kv_size=4 << 20)
    device.taken = 0
    assert started(tiny_llama, device, kv_size=64 * BLOCK_BYTES).config.num_blocks == 64
    assert device.shapes == []


def test_swapped_blocks_take_host_memory_only() -> None:
    device = Device()
    assert CudaBackend(torch.device("cuda"), device).memory(1 << 40).free == TOTAL
    assert CpuBackend().memory(1 << 60).free == 0
    assert device.taken_when_read == [0]


class Pool:
    """A capture by torch's rule: nothing more is captured into the memory pool of graphs that are gone."""

    def __init__(self, *, other_threads: bool = False) -> None:
        self._graphs = weakref.WeakSet[Graph]()
        self._used = False

    def __call__(self, work: Work) -> Work:
        if self._used and not self._graphs:
            raise RuntimeError("INTERNAL ASSERT FAILED: use_count > 0")
        self._used, graph = True, Graph(work)
        self._graphs.add(graph)
        return graph.replay


class Graph:
    def __init__(self, work: Work) -> None:
        self._work = work

    def replay(self) -> None:
        self._work()


def test_the_engines_graphs_are_captured_although_those_of_the_trial_are_gone(
    tiny_llama: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CudaCapture", Pool)
    found = SmallBackend(device)
    found._capture = None  # as on CUDA
    loaded = LoadedEngine(options(tiny_llama, kv_size=None, max_num_seqs=4), lambda _: None, lambda: 0.0, found)
    assert isinstance(loaded.runner, GraphRunner)
    assert loaded.runner.graphs.eager == []
