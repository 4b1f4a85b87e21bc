"""The properties of `paged_prefill` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import pytest
from bench.cases.paged_prefill import LARGE, NAMED, Case, compare
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.interpreted import DEVICE, DTYPES, chosen, few


@pytest.mark.parametrize("name", chosen(NAMED, LARGE))
def test_the_kernel_equals_its_reference(name: str) -> None:
    compare((NAMED | LARGE)[name], DEVICE)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads = draw(st.integers(1, 2))
    chunks = draw(st.lists(st.integers(0, 70), min_size=1, max_size=4))
    cached = draw(st.lists(st.integers(0, 90), min_size=len(chunks), max_size=len(chunks)))
    return Case(
        tuple(chunk and chunk + before for chunk, before in zip(chunks, cached, strict=True)),
        q_heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([4, 24, 64, 80, 96, 128, 192, 256])),
        block_size=draw(st.sampled_from([1, 3, 16, 32])),
        dtype=draw(DTYPES),
        fp8=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 160)),
        softcap=draw(st.none() | st.sampled_from([1.0, 30.0])),
        sinks=draw(st.booleans()),
        magnitude=draw(st.sampled_from([0.0, 1e-3, 1.0, 25.0])),
        value_magnitude=draw(st.sampled_from([1e-1, 1.0, 50.0])),
        seed=draw(st.integers(0, 2**16)),
        chunks=tuple(chunks),
        padding_rows=draw(st.integers(0, 3)),
    )


@few
@given(case=cases())
def test_any_shape_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)
