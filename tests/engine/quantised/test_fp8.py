"""fp8 weights on the CUDA backend: the tokens of rounded weights and rows, a quarter of float32's memory, and refusals."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from sluice_engine.backend.choose import choose_backend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.feed_forward.dense import Dense
from sluice_engine.backend.cuda.loading.fp8 import Fp8Layers
from sluice_engine.backend.cuda.ops.products import Fp8Weight, Product, product, product_of
from sluice_engine.core.engine import EngineLoop
from sluice_engine.errors import InvalidOption
from sluice_engine.model.loader import load_model
from sluice_kernels import launch
from tests.engine.backend.cuda.simulated_device import FixedMemory
from tests.engine.backend.cuda.test_no_synchronisation import Model
from tests.engine.families import FAMILIES, save
from tests.engine.oracle import finish, options, submit

CPU = torch.device("cpu")


def rounded(values: torch.Tensor) -> torch.Tensor:
    """Each row in e4m3, its largest value as 448."""
    scales = values.abs().amax(-1, keepdim=True).clamp(min=448e-12) / 448
    return (values / scales).to(torch.float8_e4m3fn).float() * scales


def on_fp8(folder: Path) -> EngineLoop:
    backend = CudaBackend(CPU, FixedMemory(), quantization="fp8")
    return EngineLoop(options(folder, quantization="fp8", max_num_seqs=8), backend=backend)


def test_a_product_is_that_of_the_rounded_weight_and_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    layers = tuple(torch.nn.Linear(64, outputs) for outputs in (48, 16))
    rows = torch.randn(5, 64, generator=generator)
    rows[3] = 0
    want = torch.cat([rounded(rows) @ rounded(each.weight.detach()).T + each.bias.detach() for each in layers], dim=1)
    merged = product_of(layers, Fp8Layers())
    assert isinstance(merged.weight, Fp8Weight)
    with torch.inference_mode():
        got = product(rows, merged.weight, merged.bias)
    torch.testing.assert_close(got, want, rtol=2**-8, atol=2e-2)  # the product comes in bfloat16
    assert layers[0].weight is None


def test_a_layer_whose_sizes_fp8_products_do_not_have_stays_dense() -> None:
    (layer,) = layers = (torch.nn.Linear(64, 24),)
    assert product_of(layers, Fp8Layers()).weight is layer.weight


def test_an_engine_takes_tokens_that_are_likely_for_rounded_weights(tmp_path: Path) -> None:
    folder = save(FAMILIES["llama"](), tmp_path)
    engine = on_fp8(folder)
    decoder = engine.model.module.forward
    assert isinstance(decoder, FusedDecoder)
    for layer in decoder._weights.layers:
        assert isinstance(layer.feed_forward, Dense)
        used = (layer.query_key_value, layer.output, layer.feed_forward.gate_up, layer.feed_forward.down)
        assert all(isinstance(each.weight, Fp8Weight) for each in used)
    prompts = {str(i): [3 + (5 * i + j * j) % 90 for j in range(1 + 9 * i)] for i in range(4)}
    for name, prompt in prompts.items():
        submit(engine, name, prompt, 24, ignore_eos=True)
    tokens = finish(engine)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for layer in reference.model.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.data = rounded(layer.weight.data)
            layer.register_forward_pre_hook(lambda _, given: rounded(given[0]))
    for name, prompt in prompts.items():
        with torch.inference_mode():
            logits = reference(torch.tensor([prompt + tokens[name]])).logits[0, len(prompt) - 1 : -1]
        taken = logits.gather(1, torch.tensor(tokens[name])[:, None]).squeeze(1)
        assert len(taken) == 24
        assert bool((logits.amax(1) - taken <= 0.1 * logits.abs().amax(1)).all())


def test_a_decode_step_of_fp8_layers_reads_no_value_on_the_host() -> None:
    step = Model(2, 1024, 2048, 8, vocab=512).step()
    weights = step.decoder._weights

    def fp8(of: Product) -> Product:
        assert isinstance(of.weight, torch.Tensor)
        return Product(Fp8Weight(of.weight.to(torch.float8_e4m3fn), of.weight[:, 0].float()), None)

    layers = tuple(
        replace(layer, query_key_value=fp8(layer.query_key_value), output=fp8(layer.output)) for layer in weights.layers
    )
    step.decoder._weights = replace(weights, layers=layers)
    with launch.recording(90) as launches:
        step(8)
    assert {"_kv_write", "_attend_split"} <= {one.kernel.__name__ for one in launches}


def test_a_model_that_the_fused_decoder_does_not_run_is_refused(tmp_path: Path) -> None:
    folder = save(FAMILIES["gemma2"](), tmp_path)
    with pytest.raises(InvalidOption, match="--quantization fp8 is for models that the fused decoder runs"):
        on_fp8(folder)


def test_a_cpu_an_old_gpu_and_several_ranks_are_refused(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        InvalidOption, match=r"fp8 is for GPUs, and the engine computes on the CPU\. Use --quantization int8"
    ):
        choose_backend("cpu", quantization="fp8")
    with pytest.raises(InvalidOption, match="fp8 is for models that generate text on one GPU, and several ranks share"):
        load_model(options(tiny_llama, quantization="fp8", tensor_parallel=2), CudaBackend(CPU, FixedMemory()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(
        InvalidOption, match="--quantization fp8: fp8 needs an architecture of sm_89 or newer, this is sm_80"
    ):
        choose_backend("auto", quantization="fp8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert isinstance(choose_backend("auto", quantization="fp8"), CudaBackend)
