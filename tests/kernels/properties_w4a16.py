"""The properties of `w4a16` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import pytest
import torch
from bench.cases.grouped import Case
from bench.cases.w4a16 import LARGE, NAMED, compare
from hypothesis import given
from hypothesis import strategies as st

from sluice_kernels.grouped_weights import GroupedWeights, pack
from sluice_kernels.w4a16.triton import w4a16_triton
from tests.kernels.interpreted import DEVICE, DTYPES, chosen, few


@pytest.mark.parametrize("name", chosen(NAMED, LARGE))
def test_the_kernel_equals_its_reference(name: str) -> None:
    compare((NAMED | LARGE)[name], DEVICE)


@few
@given(
    case=st.builds(
        Case,
        bits=st.just(4),
        rows=st.integers(1, 64),
        groups=st.integers(1, 5),
        outputs=st.integers(1, 150),
        dtype=DTYPES,
        scales=DTYPES,
        splits=st.sampled_from([None, 1, 2, 8]),
        magnitude=st.sampled_from([0.0, 1e-3, 1.0, 100.0]),
        extremes=st.booleans(),
        shuffled=st.booleans(),
        padding=st.integers(0, 17),
        seed=st.integers(0, 2**16),
    )
)
def test_any_shape_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)


def test_a_row_has_the_same_result_alone_and_in_a_batch() -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randint(0, 1 << 4, (1024, 96), generator=generator)
    scales = torch.rand(8, 96, generator=generator)
    weights = GroupedWeights(
        pack(values, 4).to(DEVICE), scales.to(DEVICE), torch.full((8, 96), 1 << 3, dtype=torch.int16, device=DEVICE)
    )
    x = torch.randn(16, 1024, generator=generator).to(torch.bfloat16).to(DEVICE)
    together = w4a16_triton(x, weights)
    for row in (0, 7, 15):
        assert torch.equal(w4a16_triton(x[row : row + 1], weights)[0], together[row])
