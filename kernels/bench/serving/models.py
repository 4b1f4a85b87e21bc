"""Models with random weights: small ones as folders, large ones made on the device, because nothing may be downloaded."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig

from sluice_engine.backend.base import OnBytes
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.graphs import run_eagerly
from sluice_engine.backend.cuda.memory import DeviceMemory, HostShare
from sluice_engine.model import attention
from sluice_engine.model.pretrained import Checkpoint, without_progress_bars

EIGHT_BILLION = LlamaConfig(
    hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
    vocab_size=128256, max_position_embeddings=16384, rms_norm_eps=1e-5, dtype="bfloat16",
)  # fmt: skip
# Large enough for every kernel of the decoder, with weights so large that logits are far apart.
SMALL = LlamaConfig(
    hidden_size=128, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    head_dim=64, vocab_size=512, max_position_embeddings=512, initializer_range=0.1, dtype="float32",
)  # fmt: skip


def save_small(folder: Path) -> Path:
    """The small model's folder."""
    torch.manual_seed(0)
    with without_progress_bars():
        AutoModelForCausalLM.from_config(SMALL).save_pretrained(folder)
    return folder


def save_config(config: LlamaConfig, folder: Path) -> Path:
    """A folder that the loader takes, without the weights: `RandomBackend` makes them."""
    config.save_pretrained(folder)
    save_file({"none": torch.zeros(1)}, folder / "model.safetensors")
    return folder


def on_device(device: str, *, graphs: bool = True) -> CudaBackend:
    """The CUDA backend; on a CPU its kernels are their references."""
    return CudaBackend(torch.device(device), _memory(device), capture=None if graphs else run_eagerly)


def _memory(device: str) -> DeviceMemory | None:
    return HostShare(1) if device == "cpu" else None


class RandomBackend(CudaBackend):
    """Makes random weights on the device instead of reading any."""

    def __init__(self, device: str) -> None:
        super().__init__(torch.device(device), _memory(device))

    def read(self, checkpoint: Checkpoint, on_bytes: OnBytes) -> torch.nn.Module:
        """See `base.Backend`."""
        return random_module(checkpoint.config, self.device, attention.NAME)


def random_module(config: LlamaConfig, device: torch.device, attn: str) -> torch.nn.Module:
    """transformers' module, initialised on the device."""
    torch.manual_seed(0)
    with device:
        module: torch.nn.Module = AutoModelForCausalLM.from_config(config, dtype=config.dtype, attn_implementation=attn)
    return module.eval().requires_grad_(False)
