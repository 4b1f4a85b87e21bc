"""The properties of `w8a16` that `test_properties.py` runs in a process of their own, interpreted or compiled."""

import pytest
from bench.cases.grouped import Case
from bench.cases.w8a16 import LARGE, NAMED, compare
from hypothesis import given

from sluice_kernels.w8a16.triton import w8a16_triton
from tests.kernels.grouped import cases, check_rows_alone
from tests.kernels.interpreted import DEVICE, chosen, few


@pytest.mark.parametrize("name", chosen(NAMED, LARGE))
def test_the_kernel_equals_its_reference(name: str) -> None:
    compare((NAMED | LARGE)[name], DEVICE)


@few
@given(case=cases(bits=8))
def test_any_shape_equals_the_reference(case: Case) -> None:
    compare(case, DEVICE)


def test_a_row_has_the_same_result_alone_and_in_a_batch() -> None:
    check_rows_alone(w8a16_triton, bits=8)
