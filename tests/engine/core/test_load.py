"""What can be wrong with a model folder, a device or the memory is said with what to do about it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, MistralConfig, Qwen2Config, Qwen3Config, T5Config

from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.pool_memory import PoolMemory
from sluice_engine.backend.resources import binary_size, memory_left, memory_total, processors, size_option
from sluice_engine.core.engine import EngineLoop
from sluice_engine.errors import (
    InsufficientMemory,
    InvalidOption,
    ModelInvalid,
    ModelNotFound,
)
from sluice_engine.model.kv_cache import KVShape, blocks_that_fit
from sluice_engine.model.loader import load_model, pick_dtype
from tests.engine.families import SMALL
from tests.engine.oracle import Oracle, finish, options, submit


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=f"no model folder at {tmp_path / 'nowhere'}.*Check the path"):
        load_model(options(tmp_path / "nowhere"), CpuBackend())
    with pytest.raises(ModelNotFound, match=r"holds no config\.json"):
        load_model(options(tmp_path), CpuBackend())


def test_weights_must_be_safetensors(tiny_llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_llama, folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelInvalid, match=r"holds no \*\.safetensors"):
        load_model(options(folder), CpuBackend())


def test_damaged_weights_are_an_invalid_model(tiny_llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_llama, folder)
    (folder / "model.safetensors").write_bytes(b"not safetensors at all")
    with pytest.raises(ModelInvalid, match="cannot be loaded"):
        load_model(options(folder), CpuBackend())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "cannot be read"),
        (json.dumps({"model_type": "no-such-architecture"}), "cannot be read"),
        (T5Config().to_json_string(), "not a decoder-only language model"),
        (json.dumps(Qwen3Config().to_dict() | {"layer_types": ["linear_attention"] * 32}), "layers of kind linear_att"),
    ],
)
def test_a_model_that_cannot_be_served_says_why(tmp_path: Path, config: str, words: str) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelInvalid, match=words):
        load_model(options(tmp_path), CpuBackend())


def test_a_context_longer_than_the_model_has_is_refused(tiny_llama: Path) -> None:
    with pytest.raises(InvalidOption, match="--max-model-length 513 exceeds the 512"):
        load_model(options(tiny_llama, max_model_length=513), CpuBackend())


PICKED = """
import sys
sys.path[:0] = {path!r}
from sluice_engine.backend.choose import choose_backend
print(choose_backend("auto").device)
choose_backend("cuda")
"""


def test_a_missing_gpu_is_an_error_and_never_a_fallback() -> None:
    """In a process from which CUDA hides every device, whatever this machine has."""
    done = subprocess.run(
        [sys.executable, "-c", PICKED.format(path=sys.path)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("cpu\n", 1), done.stderr
    assert "AcceleratorNotFound: --device cuda needs a GPU" in done.stderr.splitlines()[-1]
    assert "--device cpu" in done.stderr.splitlines()[-1]


def test_auto_dtype_is_the_checkpoints_where_the_processor_computes_in_it() -> None:
    cpu, native = CpuBackend(), torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert pick_dtype("auto", torch.float32, cpu) == torch.float32
    assert pick_dtype("auto", torch.float16, cpu) == torch.float32
    assert pick_dtype("auto", torch.bfloat16, cpu) == (torch.bfloat16 if native else torch.float32)
    assert pick_dtype("auto", torch.bfloat16, CudaBackend(torch.device("cuda"))) == torch.bfloat16
    assert pick_dtype("bfloat16", torch.float32, cpu) == torch.bfloat16
    with pytest.raises(InvalidOption, match="--dtype int3"):
        pick_dtype("int3", torch.float32, cpu)


def test_a_pool_that_cannot_hold_one_request_names_both_remedies(tiny_llama: Path) -> None:
    with pytest.raises(
        InsufficientMemory,
        match=r"needs 256 KiB, and --kv-size gives 40 KiB. .*--kv-size 256Ki, .*--max-model-length 80",
    ):
        EngineLoop(options(tiny_llama, kv_size=40_960))


def test_advice_that_cannot_be_followed_is_left_out(tiny_llama: Path) -> None:
    with pytest.raises(
        InsufficientMemory, match=r"--kv-size gives 5 B. Raise it to --kv-size 256Ki, or leave it out\.$"
    ):
        EngineLoop(options(tiny_llama, kv_size=5))  # no length would fit
    assert EngineLoop(options(tiny_llama, kv_size=256 << 10)).scheduler is not None


@pytest.mark.parametrize(
    ("size", "text", "option"), [(5, "5 B", "1Ki"), (1536, "1.5 KiB", "2Ki"), (3 << 30, "3 GiB", "3072Mi")]
)
def test_sizes_are_text_and_options_that_are_no_smaller(size: int, text: str, option: str) -> None:
    assert (binary_size(size), size_option(size)) == (text, option)


def test_the_pool_takes_its_share_of_memory_but_no_more_than_it_can_use(tiny_llama: Path) -> None:
    shape = KVShape(layers=2, kv_heads=2, head_dim=16, dtype=torch.float32)
    small = options(tiny_llama, kv_size=None, max_num_seqs=4, kv_memory_fraction=0.5)
    assert blocks_that_fit(small, shape, 512, PoolMemory(100 * 8192 * 2, "", "", most=1 << 50)) == 100
    assert blocks_that_fit(small, shape, 512, PoolMemory(1 << 40, "", "", most=1 << 50)) == 4 * 32


@pytest.mark.parametrize("version", [1, 2])
def test_memory_and_processors_come_from_the_cgroup(tmp_path: Path, version: int) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert memory_left(tmp_path, meminfo) == 8000 * 1024
    if version == 2:
        (tmp_path / "memory.max").write_text("4000000\n")
        (tmp_path / "memory.current").write_text("1500000\n")
        (tmp_path / "memory.stat").write_text("anon 1000000\ninactive_file 500000\n")
        (tmp_path / "cpu.max").write_text("50000 100000\n")
    else:
        (tmp_path / "memory").mkdir()
        (tmp_path / "cpu").mkdir()
        (tmp_path / "memory/memory.limit_in_bytes").write_text("4000000\n")
        (tmp_path / "memory/memory.usage_in_bytes").write_text("1500000\n")
        (tmp_path / "memory/memory.stat").write_text("inactive_file 7\ntotal_inactive_file 500000\n")
        (tmp_path / "cpu/cpu.cfs_quota_us").write_text("50000\n")
        (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert memory_left(tmp_path, meminfo) == 3_000_000
    assert memory_total(tmp_path, meminfo) == 4_000_000
    assert processors(tmp_path) == 1


def test_without_a_limit_the_machine_is_the_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 20 kB\nMemAvailable: 10 kB\n")
    assert (memory_left(tmp_path, meminfo), memory_total(tmp_path, meminfo)) == (10 * 1024, 20 * 1024)
    assert processors(tmp_path) >= 1


@pytest.mark.parametrize(
    "config",
    [
        Qwen2Config(**SMALL),
        Qwen3Config(**SMALL, head_dim=32),
        MistralConfig(**SMALL, sliding_window=24),
        GPT2Config(vocab_size=128, n_embd=64, n_layer=2, n_head=4, n_positions=256, bos_token_id=0, eos_token_id=1),
    ],
    ids=["qwen2", "qwen3", "mistral-sliding-window", "gpt2"],
)
def test_other_families_equal_generate_too(config: object, tmp_path: Path) -> None:
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    engine, oracle = EngineLoop(options(tmp_path, max_batched_tokens=32)), Oracle(tmp_path)
    prompts = [[(3 * i + j * j) % 126 + 2 for j in range(5 + 13 * i)] for i in range(6)]
    for index, prompt in enumerate(prompts):
        submit(engine, str(index), prompt, 20)
    texts = finish(engine)
    for index, prompt in enumerate(prompts):
        oracle.expect(prompt, texts[str(index)], 20)
