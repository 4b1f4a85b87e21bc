"""The properties of `sample` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bench.cases.sample import LARGE, NAMED, Case, compare
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.sampling.rng import uniform as engine_uniform
from sluice_kernels.sample.uniform import uniform
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


@triton.jit
def _uniforms(  # type: ignore[no-untyped-def]
    seeds,  # [count] int64
    positions,  # [count] int32 or int64
    out,  # [count] float64
    count,
    block: tl.constexpr,
):
    at = tl.arange(0, block)
    numbers = uniform(tl.load(seeds + at, mask=at < count), tl.load(positions + at, mask=at < count))
    tl.store(out + at, numbers, mask=at < count)


@few
@given(
    pairs=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31 - 1)), min_size=1, max_size=64),
    width=st.sampled_from([torch.int32, torch.int64]),
)
def test_uniform_numbers_equal_the_engines_bit_for_bit(pairs: list[tuple[int, int]], width: torch.dtype) -> None:
    pairs = [*pairs, (0, 0), (-1, 2**31 - 1), (2**63 - 1, 1), (-(2**63), 131072)]
    seeds = np.array([seed for seed, _ in pairs], dtype=np.int64)
    positions = torch.tensor([position for _, position in pairs], dtype=width)
    out = torch.empty(len(pairs), dtype=torch.float64, device=DEVICE)
    _uniforms[(1,)](torch.from_numpy(seeds).to(DEVICE), positions.to(DEVICE), out, len(pairs), block=128)
    expected = engine_uniform(seeds, positions.numpy())
    assert out.cpu().numpy().view(np.uint64).tolist() == expected.view(np.uint64).tolist()
