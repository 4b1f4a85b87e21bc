"""The dtype that an engine on this machine computes in when `--dtype` is auto."""

import torch


def computed_dtype(checkpoint: str) -> str:
    """The checkpoint's dtype if the device computes in it, else float32, as dtype names without "torch."."""
    if torch.cuda.is_available() or checkpoint == "float32":
        return checkpoint
    return checkpoint if checkpoint == "bfloat16" and processor_computes_bf16() else "float32"


def processor_computes_bf16() -> bool:
    """True if bf16 is faster than float32 on this CPU (avx512_bf16 or AMX); without those it is five to ten times
    slower.
    """
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
