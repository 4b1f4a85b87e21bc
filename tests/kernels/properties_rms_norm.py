"""The properties of `rms_norm` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import pytest
from bench.cases.rms_norm import LARGE, NAMED, Case, compare
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.interpreted import DEVICE, DTYPES, chosen, few


@pytest.mark.parametrize("name", chosen(NAMED, LARGE))
def test_the_kernel_equals_its_reference(name: str) -> None:
    compare((NAMED | LARGE)[name], DEVICE)


@few
@given(
    case=st.builds(
        Case,
        rows=st.integers(1, 20),
        width=st.integers(1, 300),
        dtype=DTYPES,
        residual=st.booleans(),
        fp8=st.booleans(),
        weight_offset=st.sampled_from([0.0, 1.0]),
        magnitude=st.sampled_from([0.0, 1e-6, 1.0, 1e6]),
        padding=st.integers(0, 17),
        seed=st.integers(0, 2**16),
    )
)
def test_any_shape_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)
