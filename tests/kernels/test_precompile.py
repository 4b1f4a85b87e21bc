"""Kernels that were compiled ahead of time, without a GPU, are those that Triton looks for when the same calls launch.

The calls go through Triton's own launch path on tensors of the CPU, up to the launch itself.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from triton import knobs

from sluice_kernels import launch
from sluice_kernels.image_cache import FOLDER
from sluice_kernels.kv_write import PagedCache, Rope, kv_write
from sluice_kernels.paged import AttentionRule, PagedKV
from sluice_kernels.paged_decode import paged_decode
from sluice_kernels.precompile import compiling_for, precompile
from sluice_kernels.rms_norm import rms_norm
from sluice_kernels.silu_mul import silu_mul

BF16 = torch.bfloat16
ARCHITECTURE = 90
used: set[Any] = set()  # the kernels of this module's launches


def norm(device: str, width: int = 896, gap: int = 0) -> None:
    x = torch.zeros(3, width + gap, dtype=BF16, device=device)[:, :width]
    rms_norm(x, x[0], 1e-6, 0.0, x)


def gate(device: str) -> None:
    silu_mul(torch.zeros(3, 2 * 1000, dtype=BF16, device=device), "silu")


def write(device: str) -> None:
    qkv = torch.zeros(2, 6, 64, dtype=BF16, device=device)
    query, key, value = qkv.split((4, 1, 1), dim=1)
    cache = torch.zeros(9, 16, 1, 64, dtype=BF16, device=device)
    slots = torch.zeros(2, dtype=torch.int64, device=device)
    rope = Rope(torch.zeros(32, 64, device=device), slots)
    kv_write(query, key, value, PagedCache(cache, cache, slots), rope, None)


def decode(device: str) -> None:
    query, cache = (torch.zeros(*shape, dtype=BF16, device=device) for shape in ((3, 4, 64), (9, 16, 1, 64)))
    tables, contexts = (torch.zeros(*shape, dtype=torch.int32, device=device) for shape in ((3, 129), (3,)))
    paged_decode(query, PagedKV(cache, cache, tables, contexts), AttentionRule(0.125, softcap=30.0))


CALLS: dict[str, Callable[[str], None]] = {
    "rms_norm": norm,
    "rms_norm, odd stride": lambda device: norm(device, gap=1),
    "silu_mul": gate,
    "kv_write": write,
    "paged_decode": decode,
}


def run_up_to_the_launch(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], **constants: Any) -> None:
    """What `launch` does on a GPU, without the launch."""
    used.add(kernel)
    kernel.run(*arguments, grid=grid, warmup=True, **constants)


def forget() -> None:
    """Triton's kernels in memory, as in a new process."""
    for kernel in used:
        kernel.device_caches.clear()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("image")
    with launch.recording(ARCHITECTURE) as launches:
        for call in CALLS.values():
            call("meta")
    used.update(one.kernel for one in launches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        assert precompile(launches, ARCHITECTURE) == len({one.key for one in launches}) > len(CALLS)
    yield folder
    forget()


@pytest.fixture
def compiled(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each kernel that Triton looks for was in the cache. The image's folder is that of `filled`."""
    hits: list[bool] = []
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "sluice_kernels.image_cache:ImageCache")
    monkeypatch.setenv(FOLDER, str(filled))
    monkeypatch.setattr(launch, "is_compiled", lambda tensor: True)
    monkeypatch.setattr(launch, "device_of", lambda tensor: launch.Device(ARCHITECTURE, 132))
    monkeypatch.setattr(launch, "launch", run_up_to_the_launch)
    monkeypatch.setattr(knobs.compilation, "listener", lambda **event: hits.append(event["cache_hit"]))
    forget()
    with compiling_for(ARCHITECTURE):
        yield hits


@pytest.mark.parametrize("name", CALLS)
def test_a_launch_finds_its_kernels_in_the_image(name: str, compiled: list[bool], tmp_path: Path) -> None:
    CALLS[name]("cpu")
    assert compiled != []
    assert all(compiled)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_kernel_that_the_image_lacks_is_compiled_once_and_kept(compiled: list[bool], tmp_path: Path) -> None:
    norm("cpu", width=160)
    forget()
    norm("cpu", width=160)
    assert compiled == [False, True]
    assert list(tmp_path.rglob("*.cubin")) != []


def test_a_kernel_in_the_image_is_of_its_architecture_alone(compiled: list[bool]) -> None:
    with compiling_for(80):
        norm("cpu")
    assert compiled == [False]


def test_an_incomplete_folder_is_no_hit(
    compiled: list[bool], filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "none"))
    norm("cpu")
    assert compiled == [False]
