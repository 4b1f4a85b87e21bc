"""The properties of `moe` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import pytest
import torch
from bench.cases.moe import LARGE, NAMED, Case, compare
from hypothesis import given
from hypothesis import strategies as st

from sluice_kernels.moe.configs import FEW
from sluice_kernels.moe.reference import ExpertWeights, Routing, RoutingRule
from sluice_kernels.moe.routing import route_triton
from sluice_kernels.moe.triton import moe_triton
from tests.kernels.interpreted import DEVICE, DTYPES, chosen, few


@pytest.mark.parametrize("name", chosen(NAMED, LARGE))
def test_the_kernels_equal_their_references(name: str) -> None:
    compare((NAMED | LARGE)[name], DEVICE)


@few
@given(
    case=st.integers(1, 40).flatmap(
        lambda experts: st.builds(
            Case,
            rows=st.integers(1, 40),
            experts=st.just(experts),
            top_k=st.integers(1, min(8, experts)),
            hidden=st.integers(1, 80),
            inner=st.integers(1, 70),
            dtype=DTYPES,
            scoring=st.sampled_from(["softmax", "sigmoid"]),
            renormalise=st.booleans(),
            load=st.sampled_from(["random", "one", "first half", "equal logits"]),
            shared=st.booleans(),
            tile=st.sampled_from([None, 16, 32, 64]),
            magnitude=st.sampled_from([0.0, 1e-3, 1.0]),
            padding=st.integers(0, 17),
            seed=st.integers(0, 2**16),
        )
    )
)
def test_any_shape_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)


def test_a_row_has_the_same_result_alone_and_in_a_batch() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(24, 48, generator=generator).to(torch.bfloat16).to(DEVICE)
    weights = ExpertWeights(
        *(torch.randn(6, *shape, generator=generator).to(torch.bfloat16).to(DEVICE) for shape in ((64, 48), (48, 32)))
    )
    routing = route_triton(torch.randn(24, 6, generator=generator).to(DEVICE), RoutingRule(2))
    together = moe_triton(x, weights, routing, configs=FEW)
    assert torch.equal(moe_triton(x, weights, routing, configs=FEW), together)
    for row in (0, 11, 23):
        only = slice(row, row + 1)
        alone = Routing(routing.experts[only].contiguous(), routing.weights[only].contiguous())
        assert torch.equal(moe_triton(x[only], weights, alone, configs=FEW)[0], together[row])
