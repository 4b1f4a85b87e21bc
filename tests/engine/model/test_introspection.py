"""A model that this engine's attention cannot compute is rejected at load with a sentence that names what is missing."""

from pathlib import Path

import pytest
from transformers import (
    BartConfig,
    BloomConfig,
    DeepseekV3Config,
    FalconH1Config,
    Gemma3Config,
    Gemma3TextConfig,
    GptOssConfig,
    MambaConfig,
    PreTrainedConfig,
    RwkvConfig,
)

from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.errors import ModelInvalid
from sluice_engine.model.loader import load_model
from tests.engine.families import ALTERNATING, SMALL, save
from tests.engine.oracle import options

PLAIN = {key: value for key, value in SMALL.items() if key != "initializer_range"}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12}

REFUSED: dict[str, tuple[PreTrainedConfig, str]] = {
    "alibi": (
        BloomConfig(vocab_size=128, hidden_size=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1),
        "does not go through transformers",
    ),
    "recurrent": (MambaConfig(vocab_size=128, hidden_size=64, num_hidden_layers=2), "layers of kind linear_att"),
    "hybrid": (
        FalconH1Config(**PLAIN, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=16),
        "layers of kind hybrid",
    ),
    "recurrent-unsaid": (
        RwkvConfig(vocab_size=128, hidden_size=64, attention_hidden_size=64, num_hidden_layers=2),
        "keep a recurrent state",
    ),
    "sinks": (
        GptOssConfig(**PLAIN, head_dim=16, num_local_experts=2, num_experts_per_tok=1),
        "attention is given s_aux",
    ),
    "bidirectional": (
        Gemma3TextConfig(**PLAIN | ALTERNATING, head_dim=16, use_bidirectional_attention=True),
        "attention is bidirectional",
    ),
    "latent": (
        DeepseekV3Config(**PLAIN | MLA, first_k_dense_replace=3, n_routed_experts=4, num_experts_per_tok=2, n_group=1),
        "keys and values differ in size.*4 heads of 16 and 12",
    ),
}


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_model_that_cannot_be_computed_is_rejected_before_serving(kind: str, tmp_path: Path) -> None:
    config, words = REFUSED[kind]
    with pytest.raises(ModelInvalid, match=words):
        load_model(options(save(config, tmp_path), max_model_length=64), CpuBackend())


def test_a_vision_model_is_rejected_before_its_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"not even weights")
    Gemma3Config(text_config=Gemma3TextConfig(**SMALL).to_dict()).save_pretrained(tmp_path)
    with pytest.raises(ModelInvalid, match=r"parts beside its language model \(vision_config\).*serve that"):
        load_model(options(tmp_path), CpuBackend())


def test_an_encoder_decoder_model_is_rejected_before_its_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"not even weights")
    BartConfig(vocab_size=128, d_model=32).save_pretrained(tmp_path)
    with pytest.raises(ModelInvalid, match="an encoder with a decoder"):
        load_model(options(tmp_path), CpuBackend())
