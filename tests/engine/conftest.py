"""A tiny random Llama with grouped-query attention, plain transformers as the oracle, and the compiled kernels."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from native.build import compile_library, compilers
from transformers import LlamaConfig, LlamaForCausalLM

from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.native import NativeAttention
from tests.engine.families import SMALL
from tests.engine.oracle import Oracle

SIZES = {
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,  # wide, so that greedy text is not one token over and over
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model folder: hidden 64, 2 layers, 4 query heads over 2 KV heads, float32, random but seeded."""
    torch.manual_seed(0)
    config = LlamaConfig(**SMALL | SIZES)
    folder = tmp_path_factory.mktemp("tiny-llama")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def oracle(tiny_llama: Path) -> Oracle:
    return Oracle(tiny_llama)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels, compiled for these tests: with AMX's tiles in memory (`amx/emulated.h`) where the processor has none.
    Skips on a machine without a C compiler.
    """
    if not compilers():
        pytest.skip("there is no C compiler: the compiled kernels are not tested")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of the run: the first worker that needs them compiles for all
    path = folder / "native" / "libsluice_cpu.so"
    has_tiles = "amx_tile" in Path("/proc/cpuinfo").read_text().split()
    with FileLock(folder / "native.lock"):
        if not path.exists():
            assert compile_library(path, compilers(), () if has_tiles else ("-DEMULATED_TILES",)) is None
    return path


@pytest.fixture(scope="session")
def best_level(library: Path) -> int:
    """The best level of instructions that this processor has."""
    return NativeAttention(1, library).level


LEVELS = [
    (level, widens) for level in native.LEVELS for widens in (False, True) if level >= native.BF16_LEVEL or not widens
]


@pytest.fixture(
    scope="session",
    params=LEVELS,
    ids=[f"{native.LEVELS[level]}{', widened' if widens else ''}" for level, widens in LEVELS],
)
def level(request: pytest.FixtureRequest, library: Path, best_level: int) -> Iterator[int]:
    """Each level of instructions in turn, those with bf16 with both ways to multiply it. Skips what this processor lacks."""
    level, widens = request.param
    if level > best_level:
        pytest.skip(f"this processor has no {native.LEVELS[level]}")
    loaded = NativeAttention(1, library).library
    before = loaded.sluice_widens(-1)
    loaded.sluice_widens(int(widens))
    yield level
    loaded.sluice_widens(before)
