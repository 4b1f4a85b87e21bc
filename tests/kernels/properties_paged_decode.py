"""The properties that `test_paged_decode.py` runs in a process of their own, interpreted or compiled."""

import pytest
import torch
from bench.checks import LARGE, NAMED, TOLERANCE, Case, compare
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ALL = NAMED | LARGE

torch.set_num_threads(1)


@pytest.mark.parametrize("name", ALL)
def test_the_kernel_equals_its_reference(name: str) -> None:
    if DEVICE == "cpu" and name in LARGE:  # too much for an interpreter
        pytest.skip("no GPU is visible")
    compare(ALL[name], DEVICE)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads = draw(st.integers(1, 3))
    return Case(
        contexts=tuple(draw(st.lists(st.integers(0, 150), min_size=1, max_size=4))),
        q_heads=kv_heads * draw(st.integers(1, 9)),
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([4, 16, 24, 64, 80])),
        block_size=draw(st.sampled_from([1, 3, 16, 32])),
        dtype=draw(st.sampled_from(sorted(TOLERANCE, key=str))),
        magnitude=draw(st.sampled_from([0.0, 1e-3, 1.0, 25.0])),
        value_magnitude=draw(st.sampled_from([1e-3, 1.0, 1e3])),
        splits=draw(st.sampled_from([None, 1, 2, 8])),
        seed=draw(st.integers(0, 2**16)),
    )


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_any_shape_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)
