"""Picks the backend for `--device` and the device of a rank."""

import torch

from sluice_engine.backend.base import Backend
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.loading.fp8 import refusal
from sluice_engine.backend.cuda.memory import HostShare
from sluice_engine.backend.parallel.group import Group
from sluice_engine.config import AttentionBackend, Quantization
from sluice_engine.errors import AcceleratorNotFound, InvalidOption


def rank_device(asked: str, rank: int, ranks: int) -> torch.device:
    """The device of a rank for "auto", "cpu" or "cuda". Raises AcceleratorNotFound if fewer GPUs are visible than ranks."""
    visible = torch.cuda.device_count()
    if asked == "cpu" or (asked == "auto" and not visible):
        return torch.device("cpu")
    if visible < ranks:
        raise AcceleratorNotFound(
            f"--tensor-parallel {ranks} needs {ranks} GPUs, and torch sees {visible}. Give the engine as many (in a "
            f"cluster: spec.engine.accelerator.count), or lower --tensor-parallel."
        )
    return torch.device("cuda", rank)


def sharing_backend(device: torch.device, group: Group, attention: AttentionBackend) -> Backend:
    """The backend of one rank. On a CPU the ranks rehearse what GPUs do, by the kernels' references: the compiled decoder
    is not sharded.
    """
    memory = None if device.type == "cuda" else HostShare(group.size)
    return CudaBackend(device, memory, attention=attention, group=group)


def choose_backend(asked: str, attention: AttentionBackend = "auto", quantization: Quantization = "none") -> Backend:
    """The backend for "auto", "cpu" or "cuda" on one device. Raises AcceleratorNotFound for "cuda" if no GPU is visible,
    and InvalidOption for an attention that the CPU does not have or a quantization that a GPU does not have.
    """
    visible = torch.cuda.is_available()
    if asked == "cuda" and not visible:
        raise AcceleratorNotFound(
            "--device cuda needs a GPU, and torch sees none. Check that nvidia-smi lists one and that torch is a CUDA "
            "build (in a cluster: that the pod requests a GPU, and that the node's device plugin works), or serve on "
            "the CPU with --device cpu."
        )
    if asked != "cpu" and visible:
        if quantization == "int8":
            raise InvalidOption(
                "--quantization int8 is for the CPU, and the engine computes on a GPU. Leave the option out (GPTQ and AWQ "
                "checkpoints are loaded without it), use --quantization fp8, or use --device cpu."
            )
        if quantization == "fp8" and (reason := refusal()) is not None:
            raise InvalidOption(f"--quantization fp8: {reason}. Leave the option out.")
        return CudaBackend(torch.device("cuda"), attention=attention, quantization=quantization)
    if attention != "auto":
        raise InvalidOption(
            f"--attention-backend {attention} is for GPUs, and the engine computes on the CPU, which has one attention. "
            f"Leave the option out, or use --device cuda."
        )
    if quantization == "fp8":
        raise InvalidOption(
            "--quantization fp8 is for GPUs, and the engine computes on the CPU. Use --quantization int8, or leave the "
            "option out."
        )
    return CpuBackend(quantization)
