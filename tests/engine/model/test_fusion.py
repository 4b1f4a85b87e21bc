"""Fusing a model in place keeps its logits, holds no weight twice, and finds its parts by structure alone."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, Qwen3Config

from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.core.engine import EngineLoop
from sluice_engine.model import fusion as fusing
from sluice_engine.model.fusion import PackedLinear, fuse
from sluice_engine.model.introspection import observe
from sluice_engine.model.loader import load_model
from tests.engine.families import FAMILIES, SMALL, logits_of, save
from tests.engine.oracle import options

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def run_by_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No compiled decoder, which takes a model apart before there is anything to fuse."""
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "absent")


TEXTS = [[(3 * i + j * j) % 126 + 2 for j in range(5 + 13 * i)] for i in range(5)]

# (groups merged, norms replaced, weights packed) of three layers: what each family is made of
PARTS = {
    "llama": (6, 7, 13),  # 2 groups, 2 norms; qkv, o, gate-up, down in each layer; and the head
    "qwen2": (6, 7, 13),
    "qwen3": (6, 13, 13),  # norms of queries and keys
    "mistral": (6, 7, 13),
    "gemma2": (6, 13, 12),  # four norms in each layer; the head is the embedding
    "gemma3": (6, 19, 12),
    "phi3": (0, 7, 13),  # merged as it comes
    "mixtral": (3, 7, 7),  # experts are no linear layers
    "qwen3-moe": (3, 13, 7),
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_fused_model_has_the_logits_of_the_plain_one(family: str, tmp_path: Path) -> None:
    folder = save(FAMILIES[family](), tmp_path)
    engine = EngineLoop(options(folder))
    plain = logits_of(engine, TEXTS)
    fresh = EngineLoop(options(folder))
    structure = observe(fresh.model.module, CPU)
    fused = fuse(fresh.model.module, structure, packs=True, pays_from=0)
    groups, norms, packed = PARTS[family]
    assert (fused.merged, fused.packed) == (groups, packed)
    assert sum(type(child) is fusing.RMSNorm for child in fresh.model.module.modules()) == norms
    for got, want in zip(logits_of(fresh, TEXTS), plain, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_bfloat16_logits_stay_within_its_rounding(tmp_path: Path) -> None:
    folder = save(Qwen3Config(**SMALL, head_dim=32), tmp_path, torch.bfloat16)
    engine = EngineLoop(options(folder, dtype="bfloat16"))
    exact = logits_of(EngineLoop(options(folder, dtype="float32")), TEXTS)
    for got, want in zip(logits_of(engine, TEXTS), exact, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=0.1, atol=0.1 * float(want.abs().max()))


def test_no_weight_is_held_twice(tmp_path: Path) -> None:
    model = load_model(options(save(LlamaConfig(**SMALL), tmp_path)), CpuBackend()).module
    before = sum(weight.nbytes for weight in model.parameters())
    plain = [
        weakref.ref(child.weight)
        for child in model.modules()
        if type(child) is torch.nn.Linear and child.weight is not model.get_input_embeddings().weight
    ]
    structure = observe(model, CPU)
    fuse(model, structure, packs=True, pays_from=0)
    del structure
    gc.collect()
    assert [weight() for weight in plain] == [None] * len(plain)
    packed = sum(
        child.in_features * child.out_features * 4 for child in model.modules() if isinstance(child, PackedLinear)
    )
    assert sum(weight.nbytes for weight in model.parameters() if not weight.is_mkldnn) + packed == before


def test_small_float32_weights_stay_as_they_are(tmp_path: Path) -> None:
    model = load_model(options(save(LlamaConfig(**SMALL), tmp_path)), CpuBackend()).module
    assert sum(type(child) is torch.nn.Linear for child in model.modules()) == 3 * 7 + 1


def test_without_the_packed_product_the_plain_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(plain: torch.nn.Linear) -> None:
        raise NotImplementedError("no oneDNN in this build")

    monkeypatch.setattr(fusing, "PackedLinear", missing)
    model = load_model(options(save(LlamaConfig(**SMALL), tmp_path)), CpuBackend()).module
    fused = fuse(model, observe(model, CPU), packs=True, pays_from=0)
    assert fused.packed == 0
    assert "weights are not packed, torch here cannot: no oneDNN in this build" in caplog.text


class Scale(torch.nn.Module):
    """One weight and an epsilon, and yet no norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))
        self.eps = 1e-6

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * self.weight


def test_a_module_that_only_resembles_a_norm_is_not_replaced() -> None:
    with torch.inference_mode():
        assert fusing.as_rms_norm(Scale()) is None


def test_parts_give_their_own_outputs_in_any_order_and_keep_nothing() -> None:
    torch.manual_seed(0)
    plain = [torch.nn.Linear(8, width) for width in (4, 6, 2)]
    merged = fusing.MergedLinear(plain)
    one, other = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    with torch.inference_mode():
        for index, tensor in [(2, one), (0, one), (1, other), (1, one), (0, one), (2, one), (2, one)]:
            torch.testing.assert_close(merged.part(index, tensor), plain[index](tensor))
        merged.part(0, other), merged.part(1, other), merged.part(2, other)
    assert merged._input is None
