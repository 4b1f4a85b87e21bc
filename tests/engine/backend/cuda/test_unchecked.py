"""A decoder that was compared with its model checks the arguments of its kernels no more, and computes the same."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sluice_engine.backend.cuda.attention import torch_decode
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.memory import HostShare
from sluice_engine.backend.cuda.ops import KERNELS, unchecked
from sluice_engine.core.startup import LoadedEngine
from sluice_kernels.paged_decode import paged_decode_unchecked
from sluice_kernels.rms_norm import rms_norm_unchecked
from tests.engine.oracle import options


def test_a_loaded_model_runs_without_the_checks(tiny_llama: Path) -> None:
    found = CudaBackend(torch.device("cpu"), HostShare(1))
    decoder = LoadedEngine(options(tiny_llama), lambda _: None, lambda: 0.0, found).model.module.forward
    assert isinstance(decoder, FusedDecoder)
    assert decoder._ops == unchecked(KERNELS) != KERNELS
    assert decoder._ops.decode is paged_decode_unchecked


def test_operations_that_are_no_kernels_of_ours_stay() -> None:
    assert unchecked(replace(KERNELS, decode=torch_decode)).decode is torch_decode
    assert unchecked(unchecked(KERNELS)) == unchecked(KERNELS)


def test_what_was_skipped_are_the_checks_alone() -> None:
    rows, weight = torch.randn(3, 8), torch.randn(8)
    assert torch.equal(KERNELS.add_norm_last(rows, weight, 1e-6), rms_norm_unchecked(rows, weight, 1e-6))
    with pytest.raises(ValueError, match="weight: expected shape"):
        KERNELS.add_norm_last(rows, weight[:1], 1e-6)
    rms_norm_unchecked(rows, weight[:1], 1e-6)
