"""The CUDA backend's fused decoder keeps quantised layers packed, and gives the tokens of the weights that they stand for."""

import logging
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.decoder import FusedDecoder, FusedLayer
from sluice_engine.backend.cuda.feed_forward.dense import Dense
from sluice_engine.backend.cuda.ops.products import QuantisedWeight, merged, product
from sluice_engine.backend.cuda.runner import GraphRunner
from sluice_engine.core.engine import EngineLoop
from sluice_kernels import grouped_weights, launch
from sluice_kernels.repack import repack
from tests.engine.backend.cuda.simulated_device import FixedMemory
from tests.engine.backend.cuda.test_no_synchronisation import Model
from tests.engine.families import SMALL, save
from tests.engine.oracle import options
from tests.engine.quantised.packer import Format, quantise_folder
from tests.engine.quantised.test_checkpoint import expect_equal_tokens

WIDE = SMALL | {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
FORMATS = {
    "gptq, 4 bits": Format("gptq", 4, group=128),
    "gptq, 8 bits": Format("gptq", 8, group=128),
    "gptq, one group": Format("gptq", 4, group=-1),
    "gptq, activation order": Format("gptq", 4, group=128, shuffled=True),
    "awq, 4 bits": Format("awq", 4, group=128),
    "awq, 8 bits": Format("awq", 8, group=128),
}


def on_cuda(folder: Path) -> EngineLoop:
    """An engine on the CUDA backend, whose kernels are their references here."""
    return EngineLoop(options(folder, max_num_seqs=8), backend=CudaBackend(torch.device("cpu"), FixedMemory()))


def layers_of(engine: EngineLoop) -> tuple[FusedLayer, ...]:
    decoder = engine.model.module.forward
    assert isinstance(decoder, FusedDecoder)
    return decoder._weights.layers


def parts(weight: torch.Tensor | QuantisedWeight) -> int:
    """The parts of a quantised weight; 0 for a dense one."""
    return len(weight.parts) if isinstance(weight, QuantisedWeight) else 0


def feed_forward_of(layer: FusedLayer) -> Dense:
    """The feed-forward products of a layer without experts."""
    assert isinstance(layer.feed_forward, Dense)
    return layer.feed_forward


@pytest.mark.parametrize("name", FORMATS)
def test_greedy_tokens_are_those_of_the_dequantised_model(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, dense = quantise_folder(save(LlamaConfig(**WIDE), tmp_path / "source"), tmp_path, FORMATS[name])
    with caplog.at_level(logging.INFO):
        engine = on_cuda(folder)
    assert isinstance(engine.runner, GraphRunner)
    for layer in layers_of(engine):
        dense_layer = feed_forward_of(layer)
        products = (layer.query_key_value, layer.output, dense_layer.gate_up, dense_layer.down)
        assert all(parts(each.weight) for each in products)
    count, bits = 7 * len(layers_of(engine)), FORMATS[name].bits
    assert f"{count} layers keep their weights of {bits} bits" in caplog.text
    assert sum(p.numel() for n, p in engine.model.module.named_parameters() if ".layers." in n and p.dim() == 2) == 0
    expect_equal_tokens(engine, dense)  # prompts of up to 40 tokens, so steps on both sides of the kernel's most rows


def test_layers_in_one_order_of_inputs_are_one_product_and_others_have_several_parts(tmp_path: Path) -> None:
    source = save(LlamaConfig(**WIDE), tmp_path / "source")
    wide = Format("gptq", 4, group=128)
    plain, _ = quantise_folder(source, tmp_path / "plain", wide)
    assert {parts(feed_forward_of(layer).gate_up.weight) for layer in layers_of(on_cuda(plain))} == {1}


def test_groups_below_the_kernels_are_dequantised_and_the_log_has_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, dense = quantise_folder(save(LlamaConfig(**WIDE), tmp_path / "source"), tmp_path, Format("gptq", 4, 32))
    with caplog.at_level(logging.INFO):
        engine = on_cuda(folder)
    assert {parts(feed_forward_of(layer).down.weight) for layer in layers_of(engine)} == {0}
    reasons = [each.getMessage() for each in caplog.records if "dequantised weights" in each.getMessage()]
    assert len(reasons) == 1 and "groups of a multiple of 128 rows, got one of 32" in reasons[0]
    expect_equal_tokens(engine, dense)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, grouped_weights.MOST_ROWS, grouped_weights.MOST_ROWS + 1])
@pytest.mark.parametrize("shuffled", [False, True])
def test_the_product_of_merged_weights_is_that_of_each(bits: int, rows: int, shuffled: bool) -> None:
    generator = torch.Generator().manual_seed(bits + rows)
    inner, x = 256, torch.randn(rows, 256, generator=generator)

    def made(outputs: int, seed: int) -> QuantisedWeight:
        order = torch.arange(inner) // 128
        if shuffled:
            order = order[torch.randperm(inner, generator=torch.Generator().manual_seed(seed))]
        values = torch.randint(0, 1 << bits, (inner, outputs), generator=generator)
        scales = torch.rand(2, outputs, generator=generator)
        zeros = torch.randint(0, 1 << bits, (2, outputs), generator=generator)
        return QuantisedWeight((repack(values, scales, zeros, bits, order),), bits)

    weights, bias = [made(24, 1), made(8, 2)], torch.randn(32, generator=generator)
    together = merged(weights)
    assert len(together.parts) == (2 if shuffled else 1)
    want = torch.cat([product(x, each, None) for each in weights], dim=1) + bias
    torch.testing.assert_close(product(x, together, bias), want, rtol=1e-4, atol=1e-3)
    (first,) = weights[0].parts
    matrix = grouped_weights.dequantised(first, bits)
    torch.testing.assert_close(
        want[:, :24] - bias[:24], grouped_weights.ordered(x, first) @ matrix, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize(("size", "launched"), [(1, True), (64, True), (72, False), (256, False)])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_decode_step_of_quantised_layers_runs_on_tensors_without_values(bits: int, size: int, launched: bool) -> None:
    model = Model(2, 1024, 2048, 8, vocab=512, bits=bits)
    step = model.step()
    with launch.recording(90) as launches:
        step(size)
    products = sum(one.kernel.__name__ == "_grouped_product" for one in launches)
    assert products == (4 * model.layers if launched else 0)
