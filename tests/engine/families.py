"""Tiny models of many families, and their logits as the engine's own path computes them."""

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OlmoeConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from sluice_engine.core.engine import EngineLoop
from tests.engine.oracle import finish, submit

SMALL = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 20}
MOE = {"num_experts_per_tok": 2, "head_dim": 32}

FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**SMALL),
    "qwen2": lambda: Qwen2Config(**SMALL | ALTERNATING, use_sliding_window=True),
    "qwen3": lambda: Qwen3Config(**SMALL, head_dim=32),
    "mistral": lambda: MistralConfig(**SMALL, sliding_window=24),
    "gemma2": lambda: Gemma2Config(
        **SMALL | ALTERNATING,
        head_dim=32,
        query_pre_attn_scalar=24,
        attn_logit_softcapping=1.5,  # low, so that it bends scores of this size
        final_logit_softcapping=20.0,
    ),
    "gemma3": lambda: Gemma3TextConfig(**SMALL | ALTERNATING, head_dim=32, query_pre_attn_scalar=24),
    "phi3": lambda: Phi3Config(**SMALL, sliding_window=40),
    "mixtral": lambda: MixtralConfig(**SMALL | MOE, num_local_experts=4),
    "qwen3-moe": lambda: Qwen3MoeConfig(**SMALL | MOE, num_experts=4, moe_intermediate_size=48),
}
# Further mixtures of experts: with a shared expert and a dense layer, and with norms of all heads together.
MIXTURES: dict[str, Callable[[], PreTrainedConfig]] = {
    "qwen2-moe": lambda: Qwen2MoeConfig(
        **SMALL,
        num_experts_per_tok=3,
        num_experts=6,
        moe_intermediate_size=40,
        shared_expert_intermediate_size=56,
        norm_topk_prob=False,
        mlp_only_layers=[1],
    ),
    "olmoe": lambda: OlmoeConfig(**SMALL, num_experts_per_tok=2, num_experts=5),
}


def save(config: PreTrainedConfig, folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    """A random but seeded model of this config, saved to the folder. Norms and biases too are drawn: they begin as
    ones and zeros, which would hide a mistake in them."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=0.0 if "bias" in name else 0.5, std=0.2)
    model.to(dtype).save_pretrained(folder)
    return folder


def logits_of(engine: EngineLoop, texts: list[list[int]]) -> list[torch.Tensor]:
    """Logits after the last token of each text, all texts submitted at once. Lengths must differ: a row is known by
    its last position and token."""
    seen: dict[tuple[int, int], torch.Tensor] = {}

    def note(_: torch.nn.Module, __: object, kwargs: dict[str, torch.Tensor], output: object) -> None:
        index = kwargs["logits_to_keep"]
        positions, tokens = kwargs["position_ids"][0, index].tolist(), kwargs["input_ids"][0, index].tolist()
        for key, row in zip(zip(positions, tokens, strict=True), output.logits[0], strict=True):  # type: ignore[attr-defined]
            seen[key] = row.clone()

    hook = engine.model.module.register_forward_hook(note, with_kwargs=True)
    try:
        for number, text in enumerate(texts):
            submit(engine, f"logits-{number}", text, 1)
        finish(engine)
    finally:
        hook.remove()
    return [seen[len(text) - 1, text[-1]] for text in texts]
