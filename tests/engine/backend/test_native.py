"""The compiled library: concurrent engines in one process, and libraries that were compiled from other sources."""

import logging
import mmap
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native.build import FOLDER, SOURCES, compilers

from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.decoder import NativeDecoder
from sluice_engine.backend.cpu.huge_pages import zeroed_memory
from sluice_engine.core.engine import EngineLoop
from tests.engine.oracle import Oracle, finish, options, submit


@pytest.mark.parametrize("case", ["at once", "after fork"])
def test_concurrent_engines_in_one_process_give_the_results_of_one(library: Path, case: str) -> None:
    program = [sys.executable, "-m", "tests.engine.pool_program", str(library), case]
    assert subprocess.run(program, check=False, timeout=150).returncode == 0


def test_a_library_with_another_abi_version_is_logged_and_not_used(
    library: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = native.ABI
    monkeypatch.setattr(native, "ABI", built + 1)
    with caplog.at_level(logging.INFO):
        assert native.find(1, library) is None
    assert f"it was compiled from other sources (interface {built}, not {built + 1})" in caplog.text


SWAPPED = r"(    int64_t firm;[^\n]*\n)(    int64_t kept;[^\n]*\n)"


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "words"),
    [
        ("decoder/decoder.h", SWAPPED, r"\2\1", "struct step.firm is 8 bytes at 96 there and 8 bytes at 88 here"),
        (
            "decoder/decoder.h",
            r"int64_t spent;",
            "int64_t spent, later;",
            "struct step is 136 bytes at 0 there and 128",
        ),
        (
            "kernels.h",
            r"int64_t inner, outer, kind;",
            "int64_t inner, outer; int32_t kind;",
            "struct product.kind is 4",
        ),
        ("layouts.c", r"FIELD\(decoder, epsilon\),", "", "struct decoder.epsilon is absent there"),
    ],
    ids=["fields swapped", "field added", "field narrowed", "field not listed"],
)
def test_a_library_with_another_struct_layout_is_rejected_though_its_abi_version_is_equal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, pattern: str, replacement: str, words: str
) -> None:
    if not compilers():
        pytest.skip("there is no C compiler")
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    changed, count = re.subn(pattern, replacement, (tmp_path / file).read_text())
    assert count == 1
    (tmp_path / file).write_text(changed)
    built = tmp_path / "other.so"
    sources = [str(tmp_path / source.relative_to(FOLDER)) for source in SOURCES]
    command = [compilers()[0], "-O0", "-std=gnu11", "-fPIC", "-shared", "-pthread", "-Wno-psabi", "-o", str(built)]
    subprocess.run([*command, *sources, "-lm"], check=True, capture_output=True, timeout=150)
    with caplog.at_level(logging.INFO):
        assert native.find(1, built) is None
    assert words in caplog.text
    assert "install again, or run engine/native/build.py" in caplog.text


def test_without_a_library_torch_runs_the_whole_model(
    tiny_llama: Path, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "absent")
    engine = EngineLoop(options(tiny_llama, max_batched_tokens=32))
    assert not isinstance(engine.model.module.forward, NativeDecoder)
    assert not engine.scheduler.config.chunk_deadlines
    prompts = [[(5 * i + j * j) % 126 + 2 for j in range(3 + 17 * i)] for i in range(4)]
    for index, prompt in enumerate(prompts):
        submit(engine, str(index), prompt, 12)
    texts = finish(engine)
    for index, prompt in enumerate(prompts):
        oracle.expect(prompt, texts[str(index)], 12)


def test_memory_is_allocated_where_the_system_has_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Plain)
    assert zeroed_memory(1 << 20).sum() == 0


def test_memory_is_mapped_privately_because_shared_mappings_get_no_huge_pages() -> None:
    held = zeroed_memory(1 << 22)
    ranges = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    (kind,) = [
        kind
        for span, kind, *_ in ranges
        if int(span.split("-")[0], 16) <= held.data_ptr() < int(span.split("-")[1], 16)
    ]
    assert kind == "rw-p"
