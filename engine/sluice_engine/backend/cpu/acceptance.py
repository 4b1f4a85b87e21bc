"""Decides by a numerical comparison whether the compiled decoder runs a loaded model.

If its logits, keys and values equal the model's within CLOSE, the compiled decoder runs the model; otherwise torch
does.
"""

import logging
import time
from functools import partial

import torch

from sluice_engine.backend.cpu.decoder import NativeDecoder
from sluice_engine.backend.cpu.native import NativeAttention
from sluice_engine.backend.probe import OutputMismatch, Probe, module_logits
from sluice_engine.model.decoder_parts import recognise
from sluice_engine.model.introspection import Structure
from sluice_engine.model.kv_cache import KVShape

_log = logging.getLogger(__name__)
CLOSE = {torch.float32: 1e-3, torch.bfloat16: 0.1}  # relative to the largest logit, key or value


@torch.inference_mode()
def compile_forward(
    module: torch.nn.Module, structure: Structure, shape: KVShape, kernel: NativeAttention | None
) -> bool:
    """Replace the module's `forward` by the compiled decoder if it computes this model. Returns False otherwise. The
    weights are packed and the plain ones dropped, one product at a time. Raises OutputMismatch.
    """
    parts = recognise(module, structure) if kernel is not None else None
    if kernel is None or parts is None or not parts.dense:
        _log.info("the model's layers are run by torch")
        return False
    begun = time.perf_counter()
    probe = Probe(
        shape, parts.head.out_features, getattr(module.config, "max_position_embeddings", None), torch.device("cpu")
    )
    forward = partial(module_logits, module)
    expected = probe.record(forward)
    probing = time.perf_counter() - begun
    try:
        decoder = NativeDecoder(parts, kernel, shape.head_dim)
    except ValueError as error:
        _log.info("the model's layers are run by torch: the compiled decoder does not have %s", error)
        return False
    module.forward = decoder
    begun = time.perf_counter()
    difference = probe.difference(forward, expected, CLOSE[shape.dtype])
    if difference is not None:
        raise OutputMismatch(difference)
    probing += time.perf_counter() - begun
    _log.info(
        "the model's layers are run by the compiled decoder, compared on %d tokens in %.2f s", probe.tokens, probing
    )
    return True
