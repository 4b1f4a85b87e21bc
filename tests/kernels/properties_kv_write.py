"""The properties of `kv_write` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import pytest
from bench.cases.kv_write import LARGE, NAMED, Case, compare
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.interpreted import DEVICE, DTYPES, chosen, few


@pytest.mark.parametrize("name", chosen(NAMED, LARGE))
def test_the_kernel_equals_its_reference(name: str) -> None:
    compare((NAMED | LARGE)[name], DEVICE)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 12))
    head_dim = draw(st.sampled_from([8, 20, 64, 80, 96, 128, 192, 256]))
    return Case(
        tokens,
        q_heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary_dim=2 * draw(st.integers(0, head_dim // 2)),
        norm=draw(st.booleans()),
        weight_offset=draw(st.sampled_from([0.0, 1.0])),
        dtype=draw(DTYPES),
        fp8=draw(st.booleans()),
        block_size=draw(st.sampled_from([1, 16, 32])),
        unwritten=tuple(draw(st.sets(st.integers(0, tokens - 1)))),
        wide_indices=draw(st.booleans()),
        magnitude=draw(st.sampled_from([1e-3, 1.0, 600.0])),
        bad_token=draw(st.none() | st.integers(0, tokens - 1)),
        seed=draw(st.integers(0, 2**16)),
    )


@few
@given(case=cases())
def test_any_shape_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)
