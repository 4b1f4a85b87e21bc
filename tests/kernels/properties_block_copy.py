"""The properties of `block_copy` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import pytest
from bench.cases.block_copy import LARGE, NAMED, Case, compare
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.interpreted import DEVICE, chosen, few


@pytest.mark.parametrize("name", chosen(NAMED, LARGE))
def test_the_kernel_equals_its_reference(name: str) -> None:
    compare((NAMED | LARGE)[name], DEVICE)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    targets = draw(st.lists(st.integers(0, 7), unique=True, max_size=8))
    sources = draw(st.lists(st.integers(0, 7), min_size=len(targets), max_size=len(targets)))
    return Case(
        tuple(zip(sources, targets, strict=True)),
        block=(draw(st.integers(1, 5)), draw(st.integers(1, 900))),
        between=draw(st.sampled_from(["pool", "to host", "from host"])),
    )


@few
@given(case=cases())
def test_any_shape_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)
