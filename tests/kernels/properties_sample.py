"""The properties of `sample` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import pytest
from bench.cases.sample import LARGE, NAMED, Case, compare
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
        rows=st.integers(1, 3),
        vocabulary=st.integers(1, 1500),
        temperature=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
        top_k=st.integers(0, 200),
        top_p=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
        min_p=st.sampled_from([0.0, 0.1, 1.0]),
        levels=st.integers(0, 5),
        penalised=st.booleans(),
        masked=st.booleans(),
        biased=st.booleans(),
        bad=st.sampled_from(["", "", "nan", "infinity", "all −infinity", "half −infinity"]),
        dtype=DTYPES,
        logprobs=st.just(1),
        seed=st.integers(0, 2**16),
    )
)
def test_any_row_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)
