"""The dtype that a checkpoint is computed in follows the processor, and the log says which and why."""

import logging
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from sluice_engine.backend.cpu import backend
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.model.loader import load_model, pick_dtype
from tests.engine.families import SMALL, save
from tests.engine.oracle import options

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("checkpoint", "native", "want", "said"),
    [
        (torch.bfloat16, True, torch.bfloat16, "computing in bfloat16, the checkpoint's dtype"),
        (torch.bfloat16, False, torch.float32, "no instructions for the checkpoint's torch.bfloat16"),
        (torch.float16, True, torch.float32, "no instructions for the checkpoint's torch.float16"),
        (torch.float32, True, torch.float32, None),
    ],
)
def test_auto_follows_the_processor_and_logs_the_choice(
    checkpoint: torch.dtype,
    native: bool,
    want: torch.dtype,
    said: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(backend, "processor_computes_bf16", lambda: native)
    with caplog.at_level(logging.INFO):
        assert pick_dtype("auto", checkpoint, CpuBackend()) == want
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (said is not None)
    assert all(said is not None and said in message for message in messages)


@pytest.mark.parametrize(("native", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_bfloat16_checkpoint_is_loaded_in_the_chosen_dtype(
    native: bool, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "processor_computes_bf16", lambda: native)
    model = load_model(options(save(LlamaConfig(**SMALL), tmp_path, torch.bfloat16)), CpuBackend())
    assert model.dtype == model.kv_shape.dtype == dtype
    assert model.module.get_input_embeddings().weight.dtype == dtype
