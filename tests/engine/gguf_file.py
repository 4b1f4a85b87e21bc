"""Writes small GGUF files with the `gguf` package, as llama.cpp's converter would."""

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.engine.families import SMALL

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = len(CONTROL) + 256 + 1  # control tokens, bytes and one merged pair
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"


def byte_tokens() -> list[str]:
    """GPT-2's printable character of each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def small_llama() -> LlamaForCausalLM:
    """A random but seeded Llama with tied embeddings and a vocabulary of control tokens and bytes."""
    torch.manual_seed(5)
    config = LlamaConfig(**SMALL | {"vocab_size": VOCABULARY, "eos_token_id": 2, "tie_word_embeddings": True})
    return LlamaForCausalLM(config).eval()


def write_gguf(path: Path, architecture: str = "llama", quantised: bool = True) -> Path:
    """`small_llama` as a GGUF file: matrices as Q8_0 or float32, norms as float32."""
    model = small_llama()
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("Small llama")
    writer.add_license("apache-2.0")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*CONTROL, *byte_tokens(), "th"])
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * 257)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        values = tensor.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for projection, count in heads.items():
            if projection in name:
                values = interleaved(values, count)
        stem, end = name.rsplit(".", 1)
        kind = gguf.GGMLQuantizationType.Q8_0 if quantised and values.ndim == 2 else gguf.GGMLQuantizationType.F32
        packed = gguf.quants.quantize(values.astype(np.float32), kind)
        writer.add_tensor(f"{names.get_name(stem)}.{end}", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection in llama.cpp's order: the rotated halves of each head alternate."""
    rows, columns = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
