"""On an accelerator the KV pool is a share of the device memory that is free after the weights are loaded."""

from pathlib import Path

import pytest
import torch

from sluice_engine.backend.base import ReadModule
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.resources import binary_size
from sluice_engine.core.startup import LoadedEngine
from sluice_engine.errors import InsufficientMemory
from sluice_engine.model.introspection import Structure
from tests.engine.oracle import options

TOTAL = 80 << 30
BLOCK_BYTES = 2 * 2 * 16 * 2 * 16 * 4  # keys and values, layers, tokens, KV heads, dimension, float32
REQUEST_BYTES = 512 // 16 * BLOCK_BYTES


class Device:
    """An accelerator's memory: `taken` by whatever was loaded."""

    def __init__(self) -> None:
        self.taken = 0
        self.taken_when_read: list[int] = []

    def read(self) -> tuple[int, int]:
        """As torch.cuda.mem_get_info."""
        self.taken_when_read.append(self.taken)
        return TOTAL - self.taken, TOTAL


class SmallBackend(CudaBackend):
    """A device whose weights take all but 100 blocks; its tensors are on the processor."""

    def __init__(self, memory: Device) -> None:
        super().__init__(torch.device("cpu"), memory.read)
        self._memory = memory

    def load(self, read: ReadModule, dtype: torch.dtype) -> tuple[torch.nn.Module, Structure]:
        loaded = super().load(read, dtype)
        self._memory.taken = TOTAL - 100 * BLOCK_BYTES
        return loaded


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr("sluice_engine.backend.pool_memory.memory_left", lambda: 1 << 50)  # the host has plenty
    return Device()


def started(folder: Path, device: Device, **changes: object) -> LoadedEngine:
    return LoadedEngine(options(folder, **changes), lambda _: None, lambda: 0.0, SmallBackend(device))


@pytest.mark.parametrize(("fraction", "blocks"), [(1.0, 100), (0.5, 50), (0.33, 33)])
def test_the_pool_is_a_share_of_what_the_weights_leave_on_the_device(
    tiny_llama: Path, device: Device, fraction: float, blocks: int
) -> None:
    found = started(tiny_llama, device, kv_size=None, kv_memory_fraction=fraction)
    assert found.config.num_blocks == blocks
    assert device.taken_when_read == [0, TOTAL - 100 * BLOCK_BYTES]  # whether the weights fit; then the pool


def test_a_device_with_too_little_memory_is_reported_with_both_sizes_and_two_remedies(
    tiny_llama: Path, device: Device
) -> None:
    with pytest.raises(InsufficientMemory) as caught:
        started(tiny_llama, device, kv_size=None, kv_memory_fraction=0.2)
    message = str(caught.value)
    assert (
        f"512 tokens needs {binary_size(REQUEST_BYTES)}, and {binary_size(20 * BLOCK_BYTES)} are available" in message
    )
    assert f"which has {binary_size(TOTAL)} and {binary_size(100 * BLOCK_BYTES)} of them free once" in message
    assert "a larger --kv-memory-fraction" in message
    assert "--max-model-length 320 would fit" in message
    assert "container" not in message


def test_a_size_beyond_the_devices_free_memory_is_rejected_before_it_is_allocated(
    tiny_llama: Path, device: Device
) -> None:
    with pytest.raises(
        InsufficientMemory, match=rf"asks for 4 MiB, and {binary_size(100 * BLOCK_BYTES)} are .* leave it"
    ):
        started(tiny_llama, device, kv_size=4 << 20)
    device.taken = 0
    assert started(tiny_llama, device, kv_size=64 * BLOCK_BYTES).config.num_blocks == 64


def test_swapped_blocks_take_host_memory_only() -> None:
    device = Device()
    assert CudaBackend(torch.device("cuda"), device.read).memory(1 << 40).free == TOTAL
    assert CpuBackend().memory(1 << 60).free == 0
    assert device.taken_when_read == [0]
