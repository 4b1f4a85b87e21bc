"""Picks the backend for `--device`."""

import torch

from sluice_engine.backend.base import Backend
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.config import AttentionBackend
from sluice_engine.errors import AcceleratorNotFound, InvalidOption


def choose_backend(asked: str, attention: AttentionBackend = "auto") -> Backend:
    """The backend for "auto", "cpu" or "cuda". Raises AcceleratorNotFound for "cuda" if no GPU is visible, and
    InvalidOption for an attention that the CPU does not have.
    """
    visible = torch.cuda.is_available()
    if asked == "cuda" and not visible:
        raise AcceleratorNotFound(
            "--device cuda needs a GPU, and torch sees none. Check that nvidia-smi lists one and that torch is a CUDA "
            "build (in a cluster: that the pod requests a GPU, and that the node's device plugin works), or serve on "
            "the CPU with --device cpu."
        )
    if asked != "cpu" and visible:
        return CudaBackend(torch.device("cuda"), attention=attention)
    if attention != "auto":
        raise InvalidOption(
            f"--attention-backend {attention} is for GPUs, and the engine computes on the CPU, which has one attention. "
            f"Leave the option out, or use --device cuda."
        )
    return CpuBackend()
