"""What the products of grouped weights share in their properties: drawn cases, and a row alone beside its batch."""

from collections.abc import Callable

import torch
from bench.cases.grouped import Case
from hypothesis import strategies as st

from sluice_kernels.grouped_weights import GroupedWeights, pack
from tests.kernels.interpreted import DEVICE, DTYPES

GROUPS, GROUP, OUTPUTS = 8, 128, 96


def cases(bits: int) -> st.SearchStrategy[Case]:
    """Any case of this width."""
    return st.builds(
        Case,
        bits=st.just(bits),
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


def check_rows_alone(product: Callable[[torch.Tensor, GroupedWeights], torch.Tensor], bits: int) -> None:
    """Fails if a row has another result alone than in a batch."""
    generator = torch.Generator().manual_seed(1)
    values = torch.randint(0, 1 << bits, (GROUPS * GROUP, OUTPUTS), generator=generator)
    scales = torch.rand(GROUPS, OUTPUTS, generator=generator)
    zeros = torch.full((GROUPS, OUTPUTS), 1 << (bits - 1), dtype=torch.int16, device=DEVICE)
    weights = GroupedWeights(pack(values, bits).to(DEVICE), scales.to(DEVICE), zeros)
    x = torch.randn(16, GROUPS * GROUP, generator=generator).to(torch.bfloat16).to(DEVICE)
    together = product(x, weights)
    for row in (0, 7, 15):
        assert torch.equal(product(x[row : row + 1], weights)[0], together[row])
