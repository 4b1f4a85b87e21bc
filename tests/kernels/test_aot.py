"""The committed table of compiled kernels: it belongs to the present sources, keeps the bars, and its numbers are real."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
from aot import bars, compiled, table

from sluice_kernels import launch
from sluice_kernels.rms_norm import rms_norm

ROOT = Path(__file__).parents[2]
PINNED = "3.7.1"
of_the_pinned_triton = pytest.mark.skipif(
    triton.__version__ != PINNED, reason=f"the table is of Triton {PINNED}, and {triton.__version__} is installed"
)


@pytest.fixture(scope="module")
def rows() -> list[table.Row]:
    return table.read()


@of_the_pinned_triton
def test_the_table_belongs_to_the_present_sources(rows: list[table.Row]) -> None:
    assert table.stale(rows) == [], "run make aot"


@of_the_pinned_triton
def test_a_changed_kernel_makes_its_row_stale(rows: list[table.Row]) -> None:
    changed = [replace(rows[0], digest="another"), *rows[2:]]
    lines = table.stale(changed)
    assert len(lines) == 2
    assert lines[0].startswith(f"changed: {rows[0].kernel}")
    assert lines[1].startswith(f"new: {rows[1].kernel}")
    assert table.stale([*rows, replace(rows[0], call="no such call")])[0].startswith("gone: ")


def test_every_row_keeps_the_bars(rows: list[table.Row]) -> None:
    assert bars.misses(rows) == []


def test_a_row_that_misses_a_bar_is_named(rows: list[table.Row]) -> None:
    good = next(row for row in rows if row.kernel == "paged_prefill" and row.architecture == "sm_90" and row.wgmma)
    bad = replace(good, spilled=8, shared=1 << 20, byte_loads=1, wgmma=0)
    assert [line.split(": ")[1] for line in bars.misses([bad])] == [
        "1048576 bytes of shared memory, at most 232448",
        "8 bytes spilled",
        "1 byte-wide loads from shared memory",
        "no wgmma",
    ]


def test_the_flag_of_tensor_memory_is_no_byte_wide_load_of_data(rows: list[table.Row]) -> None:
    row = next(row for row in rows if row.architecture == "sm_100" and row.wgmma)
    assert bars.misses([replace(row, byte_loads=1)]) == []
    assert len(bars.misses([replace(row, byte_loads=2)])) == 1


def test_every_default_call_is_compiled_for_three_architectures(rows: list[table.Row]) -> None:
    counts = Counter(row.name[:3] for row in rows if row.default == "yes")
    assert set(counts.values()) == {3}
    assert {row.architecture for row in rows if row.default == "no"} == {"sm_90"}


@of_the_pinned_triton
@pytest.mark.parametrize("kernel", ["rms_norm", "kv_write", "paged_prefill"])
def test_compiling_again_gives_the_numbers_of_the_table(rows: list[table.Row], kernel: str) -> None:
    one = next(one for one in table.pending() if one.name[0] == kernel and one.architecture == table.MAIN)
    assert table.row_of(one) == next(row for row in rows if row.name == one.name)


def test_residency_is_bound_by_registers_threads_and_shared_memory() -> None:
    assert compiled.resident(registers=32, shared=0, warps=8, architecture=90) == 8  # 2,048 threads
    assert (
        compiled.resident(registers=182, shared=98560, warps=8, architecture=90) == 1
    )  # 184 · 256 of 65,536 registers
    assert compiled.resident(registers=32, shared=100 << 10, warps=4, architecture=90) == 2
    assert compiled.resident(registers=32, shared=100 << 10, warps=4, architecture=80) == 1


def test_recording_runs_nothing_and_needs_no_memory() -> None:
    x = torch.empty(1 << 20, 4096, dtype=torch.bfloat16, device="meta")
    with launch.recording(90) as launches:
        out = rms_norm(x, x[0], 1e-6)
    assert out.is_meta
    assert [one.grid for one in launches] == [(1 << 20,)]


def test_launches_with_equal_keys_differ_in_nothing_that_triton_compiles_for() -> None:
    def key(rows: int, width: int = 4096, offset: int = 0, gap: int = 0) -> tuple[object, ...]:
        whole = torch.empty(rows * (width + gap) + offset, dtype=torch.bfloat16, device="meta")
        x = whole[offset:].view(rows, width + gap)[:, :width]
        with launch.recording(90) as launches:
            rms_norm(x, x[0], 1e-6)
        return launches[0].key

    assert key(32) == key(64) == key(33) == key(1)  # counts of a step are not specialised
    assert key(32) == key(32, gap=16)
    assert key(32) != key(32, gap=1)  # Triton specialises integers that are multiples of 16
    assert key(32) != key(32, width=2048)
    assert key(32) != key(32, offset=1)  # and addresses
    with pytest.raises(ValueError, match="architecture: expected one of"), launch.recording(70):
        pass


def test_the_table_is_of_the_pinned_triton() -> None:
    (pinned,) = re.findall(r"^triton==(.+)$", (ROOT / ".ci" / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned == PINNED


def test_every_kernel_is_launched_where_it_can_be_recorded() -> None:
    sources = {path: path.read_text() for path in (ROOT / "kernels" / "sluice_kernels").rglob("*.py")}
    subscripted = {path.name for path, source in sources.items() if re.search(r"\w\[[^\]\n]*\]\(", source)}
    started = {path.name for path, source in sources.items() if re.search(r"\.run\(", source)}
    assert (subscripted, started) == ({"launch.py"}, {"precompile.py"})
