"""The model of the engine comparison: a Llama of 30 M parameters with random weights, created once per machine."""

import os
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.bench.throughput.load import VOCABULARY

SEED = 0
POSITIONS = 16384


def ensure() -> Path:
    """The model's folder in the user's cache (bf16 safetensors, no tokenizer), created if it does not exist."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice"
    folder = base / f"bench-llama-30m-seed{SEED}"
    if folder.is_dir():
        return folder
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base, prefix=".bench-") as scratch:
        made = Path(scratch) / "model"
        _make().save_pretrained(made)
        shutil.move(made, folder)
    return folder


def _make() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=1536,
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
        dtype=torch.bfloat16,
    )
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return LlamaForCausalLM(config).to(torch.bfloat16)
