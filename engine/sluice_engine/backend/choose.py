"""Picks the backend for `--device`."""

import torch

from sluice_engine.backend.base import Backend
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.errors import AcceleratorNotFound


def choose_backend(asked: str) -> Backend:
    """The backend for "auto", "cpu" or "cuda". Raises AcceleratorNotFound for "cuda" if no GPU is visible."""
    visible = torch.cuda.is_available()
    if asked == "cuda" and not visible:
        raise AcceleratorNotFound(
            "--device cuda needs a GPU, and torch sees none. Check that nvidia-smi lists one and that torch is a CUDA "
            "build (in a cluster: that the pod requests a GPU, and that the node's device plugin works), or serve on "
            "the CPU with --device cpu."
        )
    return CudaBackend(torch.device("cuda")) if asked != "cpu" and visible else CpuBackend()
