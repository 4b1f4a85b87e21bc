"""The compiled library beside other users of its process, and one that was compiled from other sources."""

import logging
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from sluice_engine.model import native
from sluice_engine.model.pages import area


@pytest.mark.parametrize("case", ["at once", "after fork"])
def test_several_users_of_one_process_get_what_one_gets(library: Path | None, case: str) -> None:
    if library is None:
        return
    program = [sys.executable, "-m", "tests.engine.pool_program", str(library), case]
    assert subprocess.run(program, check=False, timeout=150).returncode == 0


def test_a_library_of_another_interface_is_said_and_left_alone(
    library: Path | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if library is None:
        return
    built = native.ABI
    monkeypatch.setattr(native, "ABI", built + 1)
    with caplog.at_level(logging.INFO):
        assert native.find(1, library) is None
    assert f"it was compiled from other sources (interface {built}, not {built + 1})" in caplog.text


def test_memory_is_had_where_the_system_has_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Plain)
    assert area(1 << 20).sum() == 0


def test_memory_is_private_for_only_such_has_huge_pages() -> None:
    held = area(1 << 22)
    ranges = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    (kind,) = [
        kind
        for span, kind, *_ in ranges
        if int(span.split("-")[0], 16) <= held.data_ptr() < int(span.split("-")[1], 16)
    ]
    assert kind == "rw-p"
